import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** One word or character of the code, and its position. */
class Token {
    private static final Set<String> STATEMENTS = Set.of(
            "assert", "break", "case", "catch", "continue", "do", "else", "finally", "for", "if", "instanceof", "new",
            "return", "super", "switch", "synchronized", "this", "throw", "try", "while", "yield");

    final int start;
    final int end;
    final String text;

    Token(int start, int end, String code) {
        this.start = start;
        this.end = end;
        this.text = code.substring(start, end);
    }

    boolean is(String... texts) {
        return List.of(texts).contains(text);
    }

    boolean isName() {
        return Character.isJavaIdentifierStart(text.charAt(0)) && !STATEMENTS.contains(text);
    }

    /** The tokens of the code, without blanks and comments; a string is one token. */
    static List<Token> split(String code) {
        List<Token> tokens = new ArrayList<>();
        for (int at = 0; at < code.length();) {
            int end = at + 1;
            char character = code.charAt(at);
            boolean blank = Character.isWhitespace(character);
            if (code.startsWith("//", at)) {
                end = after(code, "\n", at);
                blank = true;
            } else if (code.startsWith("/*", at)) {
                end = after(code, "*/", at + 2);
                blank = true;
            } else if (code.startsWith("\"\"\"", at)) {
                end = endOfString(code, "\"\"\"", at + 3);
            } else if (character == '"' || character == '\'') {
                end = endOfString(code, String.valueOf(character), at + 1);
            } else if (Character.isJavaIdentifierStart(character)) {
                while (end < code.length() && Character.isJavaIdentifierPart(code.charAt(end))) {
                    end++;
                }
            }
            if (!blank) {
                tokens.add(new Token(at, end, code));
            }
            at = end;
        }
        return tokens;
    }

    private static int after(String code, String text, int from) {
        int found = code.indexOf(text, from);
        return found < 0 ? code.length() : found + text.length();
    }

    private static int endOfString(String code, String quote, int at) {
        while (at < code.length() && !code.startsWith(quote, at)) {
            if (quote.length() == 1 && code.charAt(at) == '\n') {
                return at;
            }
            at += code.charAt(at) == '\\' ? 2 : 1;
        }
        return Math.min(code.length(), at + quote.length());
    }
}
