import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
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
        String libraries = System.getenv("SANDBOX_LIBRARIES");
        String own = System.getenv("SANDBOX_WORKDIR");
        if (!compile(split, options(folder, libraries, own))) {
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
                folder + ":" + own + ":" + libraries + "/jars/*",
                split.mainClass());
        Files.write(folder.resolve("start"), start);
        return true;
    }

    /** Classes of the working directory, compiled or not, are found by their names, as javac does there. */
    private static List<String> options(Path folder, String libraries, String own) {
        File[] jars = new File(libraries, "jars").listFiles();
        List<String> options = new ArrayList<>(List.of("-d", folder.toString(), "-Xmaxerrs", "20", "-nowarn"));
        if (jars == null) {
            // Only libraries contain annotation processors; searching for them takes time.
            options.add("-proc:none");
        }
        options.add("-cp");
        Stream<String> libraryPaths = Arrays.stream(jars == null ? new File[0] : jars).map(File::getPath);
        options.add(Stream.concat(Stream.of(own), libraryPaths).collect(Collectors.joining(File.pathSeparator)));
        return options;
    }

    private static boolean compile(Code code, List<String> options) throws IOException {
        List<View> views = code.views(options);
        List<Diagnostic<? extends JavaFileObject>> errors = new ArrayList<>();
        boolean done = ToolProvider.getSystemJavaCompiler().getTask(null, null, problem -> {
            if (problem.getKind() == Diagnostic.Kind.ERROR) {
                errors.add(problem);
            }
        }, options, null, views).call();
        View declared = views.get(0);
        List<Integer> unknown = errors.stream().filter(problem -> problem.getSource() == declared && isUnknown(problem))
                .map(problem -> declared.placeOf((int) problem.getPosition())).collect(Collectors.toList());
        if (code.share(unknown)) {
            return compile(code, options);
        }
        errors.stream().map(Main::describe).distinct().forEach(System.err::println);
        return done;
    }

    /** Whether the compiler does not know a name; it takes an unknown one before a dot for a package. */
    private static boolean isUnknown(Diagnostic<?> problem) {
        return problem.getCode().matches("compiler\\.err\\.(cant\\.resolve|doesnt\\.exist).*");
    }

    private static String describe(Diagnostic<? extends JavaFileObject> problem) {
        String[] message = problem.getMessage(Locale.ENGLISH).split("\n", 2);
        if (problem.getPosition() == Diagnostic.NOPOS) {
            return "error: " + String.join("\n", message);
        }
        if (!(problem.getSource() instanceof View)) {
            return problem.toString();
        }
        String place = ((View) problem.getSource()).show((int) problem.getPosition(), "error: " + message[0]);
        return message.length == 1 ? place : place + "\n" + message[1];
    }
}
