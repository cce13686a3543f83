import java.io.File;
import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.List;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/**
 * {@code Tool.java SOURCES CLASSES ARGUMENT...}: compiles a tool, keeps it for next time, and runs it, all in one JVM.
 */
class Tool {
    public static void main(String[] args) throws Exception {
        Path classes = compile(Path.of(args[0]), Path.of(args[1]));
        URL[] path = {classes.toUri().toURL()};
        Class<?> main = Class.forName("Main", true, new URLClassLoader(path));
        var start = main.getDeclaredMethod("main", String[].class);
        start.setAccessible(true);
        start.invoke(null, (Object) Arrays.copyOfRange(args, 2, args.length));
    }

    private static Path compile(Path sources, Path classes) throws IOException {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        // The folder appears in one step and complete: an interrupt must not leave half of it.
        Path made = Files.createTempDirectory(Files.createDirectories(classes.getParent()), "unfinished");
        File[] files = sources.toFile().listFiles((folder, name) -> name.endsWith(".java"));
        try (StandardJavaFileManager manager = compiler.getStandardFileManager(null, null, null)) {
            List<String> options = List.of("-d", made.toString(), "-proc:none");
            if (!compiler.getTask(null, manager, null, options, null, manager.getJavaFileObjects(files)).call()) {
                System.exit(2);
            }
        }
        return Files.move(made, classes, StandardCopyOption.ATOMIC_MOVE);
    }
}
