import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** The code, split into its top-level pieces: declarations, and statements to run. */
class Code {
    private static final Set<String> MODIFIERS = Set.of(
            "abstract", "final", "native", "private", "protected", "public", "sealed", "static", "strictfp",
            "synchronized", "transient", "volatile");
    private static final Token END = new Token(0, 1, ";");

    private enum Kind { HEADER, TYPE, METHOD, FIELD, STATEMENT }

    private static class Piece {
        Kind kind;
        int first;
        /** The first token after modifiers. */
        int word;
        int end;
        String name = "";
        final Map<String, Token> modifiers = new TreeMap<>();
    }

    private final String code;
    private final List<Token> tokens;
    private final List<Piece> pieces = new ArrayList<>();
    private final Set<String> shared = new TreeSet<>();
    private String packageName = "";
    private String mainClass = "Main";
    private boolean startable = true;

    Code(String code) {
        this.code = code;
        this.tokens = Token.split(code);
        for (int at = 0; at < tokens.size(); at = pieces.get(pieces.size() - 1).end) {
            pieces.add(piece(at));
        }
        if (find(Kind.METHOD) != null && pieces.stream().filter(this::isStatement).allMatch(this::isVariable)) {
            // Nothing runs but main, so these are fields, as Java 25 has it.
            pieces.stream().filter(this::isStatement).forEach(piece -> piece.kind = Kind.FIELD);
        }
    }

    /** The class to start; null when there is none. */
    String mainClass() {
        return startable ? packageName + mainClass : null;
    }

    /**
     * Shares variables of statements with methods and types, which use names that are unknown at these places; returns
     * whether there are more of them than before. Others stay local, with all rules that the compiler has for those.
     */
    boolean share(List<Integer> places) {
        Set<String> variables = new TreeSet<>();
        pieces.stream().filter(this::isVariable).forEach(
                piece -> tokens.subList(piece.word, piece.end).forEach(token -> variables.add(token.text)));
        variables.retainAll(places.stream().map(this::firstName).collect(Collectors.toSet()));
        return shared.addAll(variables);
    }

    /** The compilation units for the compiler, which has these options: first the declarations, then the statements. */
    List<View> views(List<String> options) throws IOException {
        boolean statements = pieces.stream().anyMatch(this::isStatement);
        Piece main = find(Kind.METHOD);
        if (!statements && main == null) {
            return classes();
        }
        while (pieces.stream().anyMatch(piece -> piece.kind == Kind.TYPE && piece.name.equals(mainClass))) {
            mainClass += "_";
        }
        View declared = view("declared");
        String name = statements ? "Methods" : mainClass;
        declared.insert(afterHeader(), (statements ? "" : "public ") + "class " + name + " {");
        for (Piece piece : pieces) {
            if (piece.kind == Kind.TYPE || piece.kind == Kind.METHOD || piece.kind == Kind.FIELD) {
                declare(piece, declared, piece == main && !statements);
            }
        }
        boolean starter = !statements && tokens.get(indexOf(main, "(") + 1).is(")");
        declared.insert(code.length(), "\n" + (starter ? starter() : "") + "}");
        if (!statements) {
            return List.of(declared);
        }
        View run = view("run");
        String start = "public class " + mainClass + " extends Methods {public static void main(String[] args) throws Throwable {";
        run.insert(afterHeader(), start);
        pieces.stream().filter(piece -> piece.kind == Kind.STATEMENT).forEach(piece -> keep(piece, run));
        run.insert(code.length(), "\n}}");
        if (!shared.isEmpty()) {
            new Variables(tokens, run, declared, options).move(shared);
        }
        return List.of(declared, run);
    }

    private static String starter() {
        return "public static void main(String[] args) throws Throwable {main();}";
    }

    /** The code unchanged; it starts in the first public class with main, or else in the first class with main. */
    private List<View> classes() {
        Piece main = null;
        for (Piece piece : pieces) {
            if (piece.kind == Kind.TYPE && hasMain(piece)
                    && (main == null || (piece.modifiers.containsKey("public") && !main.modifiers.containsKey("public")))) {
                main = piece;
            }
        }
        Piece named = main != null ? main : find(Kind.TYPE);
        mainClass = named == null ? mainClass : named.name;
        View all = new View(code, mainClass + ".java", "all");
        all.keep(0, code.length());
        startable = main != null;
        return List.of(all);
    }

    private View view(String folder) {
        View view = new View(code, mainClass + ".java", folder);
        pieces.stream().filter(piece -> piece.kind == Kind.HEADER).forEach(piece -> keep(piece, view));
        return view;
    }

    /** Makes a declaration static and not private, so that statements, which are in another class, can use it. */
    private void declare(Piece piece, View view, boolean open) {
        keep(piece, view);
        for (String hidden : List.of("private", "protected")) {
            if (piece.modifiers.containsKey(hidden)) {
                Token word = piece.modifiers.get(hidden);
                view.blank(word.start, word.end);
            }
        }
        String words = (piece.modifiers.containsKey("static") ? "" : "static ")
                + (open && !piece.modifiers.containsKey("public") ? "public " : "");
        view.insert(tokens.get(piece.first).start, words);
    }

    private void keep(Piece piece, View view) {
        view.keep(tokens.get(piece.first).start, tokens.get(piece.end - 1).end);
    }

    private int afterHeader() {
        return pieces.stream().takeWhile(piece -> piece.kind == Kind.HEADER)
                .mapToInt(piece -> tokens.get(piece.end - 1).end).max().orElse(0);
    }

    /** The first piece of a kind; of methods, the first one named main. */
    private Piece find(Kind kind) {
        return pieces.stream().filter(piece -> piece.kind == kind && (kind != Kind.METHOD || piece.name.equals("main")))
                .findFirst().orElse(null);
    }

    private boolean isStatement(Piece piece) {
        // A lone closing brace is not a statement: the compiler reports it as a mistake.
        return piece.kind == Kind.STATEMENT && !tokens.get(piece.first).is("}", ";");
    }

    private boolean isVariable(Piece piece) {
        int at = piece.word + 1;
        while (!isVariable(at) && (token(at).isName() || token(at).is(".", "<", ">", "[", "]", "?", ",", "&"))) {
            at++;
        }
        return isStatement(piece) && isVariable(at);
    }

    /** Whether this is the name of a variable that is declared here. */
    private boolean isVariable(int at) {
        Token before = token(at - 1);
        return token(at).isName() && (before.isName() || before.is(">", "]")) && token(at + 1).is("=", ";", ",", "[");
    }

    /** The first name of the expression with dots that contains a place in the code. */
    private String firstName(int place) {
        int at = 0;
        while (token(at).end <= place && at < tokens.size()) {
            at++;
        }
        while (token(at).is(".") || token(at - 1).is(".")) {
            at--;
        }
        return token(at).text;
    }

    private boolean hasMain(Piece piece) {
        int depth = 0;
        for (int at = piece.first; at < piece.end; at++) {
            depth += depthOf(tokens.get(at));
            if (depth == 1 && token(at).is("void") && token(at + 1).is("main") && token(at + 2).is("(")) {
                return true;
            }
        }
        return false;
    }

    private Piece piece(int first) {
        Piece piece = new Piece();
        piece.first = first;
        int at = skipModifiers(piece);
        piece.word = at;
        if (token(at).is("package", "import")) {
            piece.kind = Kind.HEADER;
            piece.end = endOf(at, false);
            if (token(at).is("package")) {
                packageName = code.substring(token(at).end, token(piece.end - 1).start).strip() + ".";
            }
        } else if (token(at).is("class", "interface", "enum") || isRecord(at) || isAnnotation(at)) {
            piece.kind = Kind.TYPE;
            piece.name = token(at + (isAnnotation(at) ? 2 : 1)).text;
            piece.end = endOf(at, true);
        } else if (methodName(at) > 0) {
            piece.kind = Kind.METHOD;
            piece.name = token(methodName(at)).text;
            piece.end = endOf(at, true);
        } else {
            boolean field = Set.of("static", "public", "private", "protected").stream()
                    .anyMatch(piece.modifiers::containsKey);
            piece.kind = field ? Kind.FIELD : Kind.STATEMENT;
            piece.end = endOf(at, false);
        }
        return piece;
    }

    private int skipModifiers(Piece piece) {
        int at = piece.first;
        while (true) {
            Token token = token(at);
            if (token.is("@") && !token(at + 1).is("interface")) {
                at += 2;
                while (token(at).is(".")) {
                    at += 2;
                }
                at = token(at).is("(") ? closing(at) : at;
            } else if (token.is("non") && token(at + 1).is("-") && token(at + 2).is("sealed")) {
                at += 3;
            } else if (MODIFIERS.contains(token.text) && !token(at + 1).is("(", "=")) {
                piece.modifiers.put(token.text, token);
                at++;
            } else {
                return at;
            }
        }
    }

    private boolean isRecord(int at) {
        return token(at).is("record") && token(at + 1).isName() && token(at + 2).is("(", "<");
    }

    private boolean isAnnotation(int at) {
        return token(at).is("@") && token(at + 1).is("interface");
    }

    /** The position of the name of the method that is declared here; 0 when no method is declared here. */
    private int methodName(int at) {
        int end = at;
        while (token(end).isName() || token(end).is(".", "<", ">", "[", "]", "?", ",", "&")
                || (token(end).is("super") && token(end - 1).is("?"))) {
            end++;
        }
        boolean named = end - at >= 2 && token(end).is("(") && token(end - 1).isName()
                && (token(end - 2).isName() || token(end - 2).is(">", "]"));
        return named && token(closing(end)).is("{", "throws") ? end - 1 : 0;
    }

    /** The position after a piece: after its semicolon, or after its braces. */
    private int endOf(int at, boolean body) {
        int depth = 0;
        for (; at < tokens.size(); at++) {
            Token token = tokens.get(at);
            depth += depthOf(token);
            if (depth <= 0 && (token.is("}") || (token.is(";") && !body))) {
                return at + 1;
            }
        }
        return tokens.size();
    }

    private int closing(int at) {
        int depth = 0;
        for (; at < tokens.size(); at++) {
            depth += depthOf(tokens.get(at));
            if (depth == 0) {
                return at + 1;
            }
        }
        return at;
    }

    private int indexOf(Piece piece, String text) {
        int at = piece.first;
        while (!token(at).is(text)) {
            at++;
        }
        return at;
    }

    private static int depthOf(Token token) {
        return token.is("{", "(", "[") ? 1 : token.is("}", ")", "]") ? -1 : 0;
    }

    private Token token(int at) {
        return at >= 0 && at < tokens.size() ? tokens.get(at) : END;
    }
}
