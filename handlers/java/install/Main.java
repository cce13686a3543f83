import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * {@code Main INDEX GROUP:ARTIFACT:VERSION...}: adds libraries and their run-time dependencies to those of the session.
 *
 * <p>If there are several versions of an artifact, it takes the one nearest to the requested libraries, as Maven does.
 */
class Main {
    private final Repository repository;
    private final Path libraries;
    private final Map<String, Path> jars = new LinkedHashMap<>();
    private final Map<String, Artifact> chosen = new LinkedHashMap<>();

    private Main(String index, Path libraries) {
        this.repository = new Repository(index, libraries.resolve("fetched"));
        this.libraries = libraries;
    }

    public static void main(String[] args) throws IOException {
        try {
            new Main(args[0], Path.of(System.getenv("SANDBOX_LIBRARIES"))).install(List.of(args).subList(1, args.length));
        } catch (Failure failure) {
            System.err.println(failure.getMessage());
            System.exit(1);
        }
    }

    private void install(List<String> coordinates) throws IOException {
        Path asked = libraries.resolve("asked");
        Map<String, Artifact> roots = new LinkedHashMap<>();
        List<String> lines = new ArrayList<>(Files.exists(asked) ? Files.readAllLines(asked) : List.of());
        lines.addAll(coordinates);
        lines.stream().map(Artifact::parse).forEach(root -> roots.put(root.key(), root));
        resolve(roots);
        link();
        List<String> kept = new ArrayList<>();
        roots.values().forEach(root -> kept.add(root.toString()));
        Files.write(asked, kept);
    }

    private void resolve(Map<String, Artifact> roots) throws IOException {
        Deque<Pom.Dependency> waiting = new ArrayDeque<>();
        roots.values().forEach(root -> waiting.add(new Pom.Dependency(root, Set.of())));
        while (!waiting.isEmpty()) {
            Pom.Dependency next = waiting.remove();
            Artifact artifact = next.artifact;
            if (chosen.putIfAbsent(artifact.key(), artifact) != null) {
                continue;
            }
            Pom pom = Pom.read(repository, artifact);
            if (pom == null) {
                throw absent(artifact);
            }
            if (pom.movedTo() != null) {
                waiting.addFirst(new Pom.Dependency(pom.movedTo(), next.excluded));
                continue;
            }
            if (pom.hasJar()) {
                Path jar = repository.fetch(artifact, artifact.jarEnding());
                if (jar == null) {
                    throw absent(artifact);
                }
                jars.put(artifact.toString().replace(':', '_') + ".jar", jar);
            }
            for (Pom.Dependency needed : pom.dependencies()) {
                if (!excludes(next.excluded, needed.artifact)) {
                    Set<String> excluded = new HashSet<>(next.excluded);
                    excluded.addAll(needed.excluded);
                    waiting.add(new Pom.Dependency(needed.artifact, excluded));
                }
            }
        }
    }

    private Failure absent(Artifact artifact) throws IOException {
        String newest = repository.newest(artifact);
        String hint = newest.isEmpty() ? "" : "; the newest version is " + newest;
        return new Failure("the index does not have " + artifact + hint);
    }

    private static boolean excludes(Set<String> excluded, Artifact artifact) {
        return excluded.contains(artifact.group + ":" + artifact.name) || excluded.contains(artifact.group + ":*")
                || excluded.contains("*:" + artifact.name) || excluded.contains("*:*");
    }

    /** Puts exactly these jars on the class path. */
    private void link() throws IOException {
        Path folder = Files.createDirectories(libraries.resolve("jars"));
        try (var old = Files.newDirectoryStream(folder)) {
            for (Path jar : old) {
                Files.delete(jar);
            }
        }
        for (Map.Entry<String, Path> jar : jars.entrySet()) {
            Files.createLink(folder.resolve(jar.getKey()), jar.getValue());
        }
        Map<String, String> versions = new TreeMap<>();
        chosen.values().forEach(artifact -> versions.put(artifact.key(), artifact.version));
        List<String> lines = new ArrayList<>();
        versions.forEach((key, version) -> lines.add(key + " " + version));
        Files.write(libraries.resolve("installed"), lines);
    }
}
