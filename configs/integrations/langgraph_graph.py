"""A LangGraph graph that is compiled once and serves many conversations, each with a session in its context."""

from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from sandbox_tool import DESCRIPTION, ExecuteCode, execute

from llm_sandbox_mcp import Sandboxes, Session


@dataclass
class Conversation:
    """The context that tools find in their runtime."""

    session: Session


@tool("execute_code", description=DESCRIPTION, args_schema=ExecuteCode)
async def execute_code(code: str, language: str, runtime: ToolRuntime[Conversation]) -> list[dict[str, str]]:
    answer = await execute(runtime.context.session, code, language)
    images = [{"type": "image", "mime_type": image.mime_type, "base64": image.base64} for image in answer.images]
    return [{"type": "text", "text": answer.text}, *images]


def compiled(model: BaseChatModel) -> CompiledStateGraph[MessagesState, Conversation, MessagesState, MessagesState]:
    """A loop of the model and the tool, until the model stops calling the tool."""
    with_tool = model.bind_tools([execute_code])

    async def reply(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await with_tool.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState, context_schema=Conversation)
    graph.add_node("model", reply)
    graph.add_node("tools", ToolNode([execute_code]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


async def ask(model: BaseChatModel, question: str) -> str:
    """Lets the graph answer by running code, in a sandbox that is destroyed afterwards."""
    graph = compiled(model)
    async with Sandboxes() as sandboxes, sandboxes.session() as session:
        state = await graph.ainvoke({"messages": [HumanMessage(question)]}, context=Conversation(session))
        return str(state["messages"][-1].text)
