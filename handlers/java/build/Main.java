import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import javax.tools.Diagnostic;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.ToolProvider;

/**
 * {@code Main FOLDER}: compiles the program on standard input into FOLDER, and writes there how to start it.
 *
 * <p>A program consists of classes, one of which has main, or of plain statements with methods and types. Messages are
 * about the original code: the text that is added around it takes no line and is not shown.
 */
class Main {
    public static void main(String[] args) throws IOException {
        String code = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        if (!build(code, Path.of(args[0]))) {
            System.exit(1);
        }
    }

    /** Whether the code is a program; if it is not, standard error says why. */
    static boolean build(String code, Path folder) throws IOException {
        Files.createDirectories(folder);
        Code split = new Code(code);
        List<View> views = split.views();
        String libraries = System.getenv("SANDBOX_LIBRARIES");
        if (!compile(views, folder, libraries)) {
            return false;
        }
        if (split.mainClass() == null) {
            System.err.println("error: the program has no main method; write a class with main, or plain statements");
            return false;
        }
        List<String> start = List.of(
                // Limits the heap to the memory of the sandbox; by default the JVM uses the memory of the machine.
                "-XX:MaxRAM=" + System.getenv("SANDBOX_MEMORY"),
                "-XX:MaxRAMPercentage=60",
                "-cp",
                folder + ":" + libraries + "/jars/*",
                split.mainClass());
        Files.write(folder.resolve("start"), start);
        return true;
    }

    private static boolean compile(List<View> views, Path folder, String libraries) {
        File[] jars = new File(libraries, "jars").listFiles();
        List<String> options = new ArrayList<>(List.of("-d", folder.toString(), "-Xmaxerrs", "20", "-nowarn"));
        if (jars == null) {
            // Only libraries contain annotation processors; searching for them takes time.
            options.add("-proc:none");
        } else {
            options.add("-cp");
            options.add(Arrays.stream(jars).map(File::getPath).collect(Collectors.joining(File.pathSeparator)));
        }
        Set<String> errors = new LinkedHashSet<>();
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        boolean done = compiler.getTask(null, null, problem -> {
            if (problem.getKind() == Diagnostic.Kind.ERROR) {
                errors.add(describe(problem));
            }
        }, options, null, views).call();
        errors.forEach(System.err::println);
        return done;
    }

    private static String describe(Diagnostic<? extends JavaFileObject> problem) {
        String[] message = problem.getMessage(Locale.ENGLISH).split("\n", 2);
        if (!(problem.getSource() instanceof View) || problem.getPosition() == Diagnostic.NOPOS) {
            return "error: " + String.join("\n", message);
        }
        String place = ((View) problem.getSource()).show((int) problem.getPosition(), "error: " + message[0]);
        return message.length == 1 ? place : place + "\n" + message[1];
    }
}
