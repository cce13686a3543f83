"""What data work takes for granted is there: each task uses libraries that nobody installed into the session."""

import anyio
import pytest

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.testing.asking import execute, open_session
from tests.engines import need, need_image

from .serving import service_with_default_libraries

pytestmark = pytest.mark.anyio

TASKS = {
    "numpy, pandas, openpyxl": (
        """
import pandas as pd
pd.DataFrame({"price": [1.5, 2.5]}).to_excel("prices.xlsx", index=False)
pd.read_excel("prices.xlsx").price.sum()
""",
        "np.float64(4.0)",
    ),
    "matplotlib, pypdf": (
        """
import matplotlib.pyplot as plt, pypdf
plt.rcParams["pdf.fonttype"] = 42
plt.figure().text(0.1, 0.5, "a page of text")
plt.savefig("page.pdf"); plt.close()
pypdf.PdfReader("page.pdf").pages[0].extract_text().strip()
""",
        "'a page of text'",
    ),
    "python-docx": (
        """
import docx
letter = docx.Document()
letter.add_paragraph("Dear reader")
letter.save("letter.docx")
[paragraph.text for paragraph in docx.Document("letter.docx").paragraphs]
""",
        "['Dear reader']",
    ),
    "lxml, beautifulsoup4": (
        """
import bs4, io
page = "<table><tr><th>n</th></tr><tr><td>7</td></tr></table><p>below"
pd.read_html(io.StringIO(page))[0].n[0].item(), bs4.BeautifulSoup(page, "lxml").p.text
""",
        "(7, 'below')",
    ),
    "pillow": ("from PIL import Image\nImage.new('RGB', (4, 2)).rotate(90, expand=True).size", "(2, 4)"),
    "scipy": ("from scipy.optimize import brentq\nround(brentq(lambda x: x * x - 2, 0, 2), 6)", "1.414214"),
    "scikit-learn": (
        """
from sklearn.linear_model import LinearRegression
LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).predict([[3]]).round(6).tolist()
""",
        "[7.0]",
    ),
    "seaborn": (
        """
import seaborn
axes = seaborn.barplot(x=["a", "b"], y=[1, 2])
heights = [bar.get_height().item() for bar in axes.patches]; plt.close()
heights
""",
        "[1.0, 2.0]",
    ),
    "sympy": ("import sympy\nx = sympy.Symbol('x')\nsympy.solve(x ** 2 - 4, x)", "[-2, 2]"),
}


async def test_everyday_tasks_need_no_installation(backend_name: str) -> None:
    await need(backend_name)
    need_image(backend_name, "python")
    with anyio.fail_after(120):
        async with service_with_default_libraries(backend_name) as service:
            session = open_session(service, "python")
            done = {name: await execute(service, code, session_id=session) for name, (code, _) in TASKS.items()}
    assert {name: run.result or run.stderr for name, run in done.items()} == {
        name: result for name, (_, result) in TASKS.items()
    }


def test_every_default_library_has_a_task() -> None:
    named = {library for name in TASKS for library in name.split(", ")}
    assert named == set(load_profile().language("python").libraries)
