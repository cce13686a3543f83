import java.net.URI;
import java.util.Map;
import java.util.TreeMap;
import javax.tools.SimpleJavaFileObject;

/** The code as one compilation unit: parts blanked out, words inserted, positions mapped back to the original code. */
class View extends SimpleJavaFileObject {
    private final String code;
    private final String file;
    private final TreeMap<Integer, String> inserted = new TreeMap<>();
    private final StringBuilder kept;

    View(String code, String file, String folder) {
        // Stack traces show the last part; the folder only distinguishes views of the same file.
        super(URI.create("code:///" + folder + "/" + file), Kind.SOURCE);
        this.code = code;
        this.file = file;
        this.kept = new StringBuilder(code);
        blank(0, code.length());
    }

    void keep(int start, int end) {
        kept.replace(start, end, code.substring(start, end));
    }

    void blank(int start, int end) {
        for (int at = start; at < end; at++) {
            if (!Character.isWhitespace(code.charAt(at))) {
                kept.setCharAt(at, ' ');
            }
        }
    }

    void insert(int position, String words) {
        inserted.merge(position, words, String::concat);
    }

    /** A message for a position in this view, with the line of the code that it is about. */
    String show(int position, String message) {
        int place = Math.max(0, Math.min(placeOf(position), code.stripTrailing().length()));
        int start = code.lastIndexOf('\n', place - 1) + 1;
        int end = code.indexOf('\n', start);
        String line = code.substring(start, end < 0 ? code.length() : end).stripTrailing();
        long number = code.substring(0, start).chars().filter(character -> character == '\n').count() + 1;
        String margin = code.substring(start, place).replaceAll("[^\\t]", " ");
        return file + ":" + number + ": " + message + "\n" + line + "\n" + margin + "^";
    }

    /** The place in the code of a position in this view. */
    int placeOf(int position) {
        int shift = 0;
        for (Map.Entry<Integer, String> words : inserted.entrySet()) {
            int start = words.getKey() + shift;
            if (position < start) {
                break;
            }
            shift += Math.min(words.getValue().length(), position - start);
        }
        return position - shift;
    }

    @Override
    public CharSequence getCharContent(boolean ignored) {
        StringBuilder text = new StringBuilder(kept);
        inserted.descendingMap().forEach(text::insert);
        return text;
    }

    /** A public class may have any name. */
    @Override
    public boolean isNameCompatible(String name, Kind kind) {
        return true;
    }
}
