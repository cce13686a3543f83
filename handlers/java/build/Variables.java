import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.LiteralTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.NewArrayTree;
import com.sun.source.tree.StatementTree;
import com.sun.source.tree.Tree;
import com.sun.source.tree.VariableTree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.Trees;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import javax.lang.model.element.Modifier;
import javax.lang.model.element.NestingKind;
import javax.lang.model.element.TypeElement;
import javax.lang.model.type.DeclaredType;
import javax.lang.model.type.IntersectionType;
import javax.lang.model.type.TypeKind;
import javax.lang.model.type.TypeMirror;
import javax.tools.ToolProvider;

/** Moves variables of statements to the class of the methods: fields there, to which the statements assign. */
class Variables {
    private final List<Token> tokens;
    private final View run;
    private final View declared;
    private final JavacTask task;
    private final CompilationUnitTree unit;
    /** What is to change in {@code run}, once no more positions in it are needed. */
    private final List<Runnable> edits = new ArrayList<>();

    /** The statements are in {@code run}, the methods in {@code declared}. */
    Variables(List<Token> tokens, View run, View declared, List<String> options) throws IOException {
        this.tokens = tokens;
        this.run = run;
        this.declared = declared;
        task = (JavacTask) ToolProvider.getSystemJavaCompiler()
                .getTask(null, null, problem -> { }, options, null, List.of(run, declared));
        unit = task.parse().iterator().next();
    }

    void move(Set<String> names) throws IOException {
        List<List<VariableTree>> moved = declarations().stream()
                .filter(variables -> variables.stream().anyMatch(one -> names.contains(one.getName().toString())))
                .collect(Collectors.toList());
        Set<Tree> inferred = moved.stream().map(variables -> variables.get(0))
                .filter(variable -> variable.getType() == null).collect(Collectors.toSet());
        if (!inferred.isEmpty()) {
            task.analyze();
        }
        for (List<VariableTree> variables : moved) {
            int from = place(start(variables.get(0)));
            for (VariableTree variable : variables) {
                String type = inferred.contains(variable) ? inferredType(variable) : variable.getType().toString();
                if (type != null) {
                    from = move(variable, type, from);
                }
            }
        }
        edits.forEach(Runnable::run);
    }

    /** The variables of each statement that declares some. */
    private List<List<VariableTree>> declarations() {
        List<? extends Tree> types = unit.getTypeDecls();
        MethodTree main = (MethodTree) ((ClassTree) types.get(types.size() - 1)).getMembers().get(0);
        List<List<VariableTree>> found = new ArrayList<>();
        long last = -1;
        for (StatementTree statement : main.getBody().getStatements()) {
            if (statement instanceof VariableTree) {
                if (start(statement) != last) {
                    found.add(new ArrayList<>());
                }
                last = start(statement);
                found.get(found.size() - 1).add((VariableTree) statement);
            }
        }
        return found;
    }

    /** Moves one variable, whose part of the statement begins at {@code from}; returns where this part ends. */
    private int move(VariableTree variable, String type, int from) {
        String name = variable.getName().toString();
        Tree value = variable.getInitializer();
        int until = place(value == null ? end(variable) : start(value));
        List<Token> part = tokens.stream()
                .filter(token -> token.start >= from && token.end <= until && !token.is(";"))
                .collect(Collectors.toList());
        Token last = part.get(part.size() - 1);
        Token word = part.stream().filter(token -> token.is(name)).reduce((one, next) -> next).orElseThrow();
        int end = value == null ? last.end : place(end(value));
        // A constant stays one, such as for the cases of a switch.
        boolean constant = value instanceof LiteralTree && variable.getModifiers().getFlags().contains(Modifier.FINAL);
        String field = constant ? "static final " + type + " " + name + " = " + value : "static " + type + " " + name;
        declared.insert(from, field + ";");
        boolean bare = value instanceof NewArrayTree && ((NewArrayTree) value).getType() == null;
        edits.add(() -> {
            run.insert(from, part.get(0).is(",") ? ";" : "");
            run.blank(from, word.start);
            if (value == null || constant) {
                run.blank(word.start, end);
            } else {
                run.blank(word.end, last.start);
                run.insert(until, bare ? "new " + type + " " : "");
            }
        });
        return end;
    }

    /** The type that `var` stands for, as far as it has a name; null if it is unknown. */
    private String inferredType(VariableTree variable) {
        Trees trees = Trees.instance(task);
        TypeMirror type = trees.getElement(trees.getPath(unit, variable)).asType();
        if (type.getKind() == TypeKind.INTERSECTION) {
            type = ((IntersectionType) type).getBounds().get(0);
        }
        if (type.getKind() == TypeKind.DECLARED) {
            TypeElement element = (TypeElement) ((DeclaredType) type).asElement();
            if (element.getNestingKind() == NestingKind.ANONYMOUS) {
                List<? extends TypeMirror> interfaces = element.getInterfaces();
                type = interfaces.isEmpty() ? element.getSuperclass() : interfaces.get(0);
            }
        }
        if (type.getKind() == TypeKind.ERROR) {
            return null;
        }
        boolean nameless = type.toString().matches(".*(&|#|<anonymous |<captured ).*");
        return (nameless ? task.getTypes().erasure(type) : type).toString();
    }

    private long start(Tree tree) {
        return Trees.instance(task).getSourcePositions().getStartPosition(unit, tree);
    }

    private long end(Tree tree) {
        return Trees.instance(task).getSourcePositions().getEndPosition(unit, tree);
    }

    private int place(long position) {
        return run.placeOf((int) position);
    }
}
