import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The content of a project file, with what it inherits and imports. */
class Pom {
    private static final int DEEPEST = 32;
    private static final Pattern PLACEHOLDER = Pattern.compile("\\$\\{([^}]+)\\}");
    private static final Pattern RANGE = Pattern.compile("\\[([^,\\])]+).*|\\(,([^\\]]+)\\]");

    private final Map<String, String> properties = new LinkedHashMap<>();
    private final Map<String, Xml> managed = new LinkedHashMap<>();
    private final Map<String, Map<String, String>> foreign = new LinkedHashMap<>();
    private final List<Xml> declared = new ArrayList<>();
    private final Artifact artifact;
    private String packaging = "";
    private Artifact movedTo;

    private Pom(Artifact artifact) {
        this.artifact = artifact;
    }

    /** A dependency, and the artifacts that are excluded from its own dependencies. */
    static class Dependency {
        final Artifact artifact;
        final Set<String> excluded;

        Dependency(Artifact artifact, Set<String> excluded) {
            this.artifact = artifact;
            this.excluded = excluded;
        }
    }

    /** The project file of an artifact; null when the index has none. */
    static Pom read(Repository repository, Artifact artifact) throws IOException {
        return read(repository, artifact, 0);
    }

    private static Pom read(Repository repository, Artifact artifact, int depth) throws IOException {
        Path file = depth > DEEPEST ? null : repository.fetch(artifact, ".pom");
        if (file == null) {
            return null;
        }
        Pom pom = new Pom(artifact);
        Xml project = Xml.parse(Files.readAllBytes(file));
        pom.packaging = project.text("packaging");
        Xml parent = project.child("parent");
        for (String part : List.of("groupId", "artifactId", "version")) {
            pom.properties.put("project.parent." + part, parent.text(part));
        }
        pom.properties.putAll(Map.of(
                "project.groupId", artifact.group, "project.artifactId", artifact.name, "project.version", artifact.version,
                "pom.groupId", artifact.group, "pom.version", artifact.version, "version", artifact.version));
        project.child("properties").children().forEach(property -> pom.properties.put(property.name(), property.text()));
        if (parent.exists()) {
            pom.inherit(needed(repository, pom.coordinate(parent), artifact, depth));
        }
        Xml moved = project.child("distributionManagement").child("relocation");
        if (moved.exists()) {
            pom.movedTo = pom.movedTo(moved);
        }
        pom.declared.addAll(project.child("dependencies").children());
        for (Xml entry : project.child("dependencyManagement").child("dependencies").children()) {
            if (entry.text("scope").equals("import")) {
                pom.imports(needed(repository, pom.coordinate(entry), artifact, depth));
            } else {
                pom.managed.put(pom.key(entry), entry);
                pom.foreign.remove(pom.key(entry));
            }
        }
        return pom;
    }

    private static Pom needed(Repository repository, Artifact wanted, Artifact by, int depth) throws IOException {
        Pom found = read(repository, wanted, depth + 1);
        if (found == null) {
            throw new Failure(by + " needs " + wanted + ", which the index does not have");
        }
        return found;
    }

    private void inherit(Pom parent) {
        parent.properties.forEach(properties::putIfAbsent);
        managed.putAll(parent.managed);
        foreign.putAll(parent.foreign);
        declared.addAll(parent.declared);
    }

    /** Takes in the managed versions of an imported file, which use the properties of that file. */
    private void imports(Pom bill) {
        bill.managed.forEach((key, entry) -> {
            if (managed.putIfAbsent(key, entry) == null) {
                foreign.put(key, bill.foreign.getOrDefault(key, bill.properties));
            }
        });
    }

    Artifact movedTo() {
        return movedTo;
    }

    boolean hasJar() {
        return !packaging.equals("pom");
    }

    /** The dependencies that are needed at run time. */
    List<Dependency> dependencies() {
        List<Dependency> needed = new ArrayList<>();
        for (Xml entry : declared) {
            String key = key(entry);
            Xml rule = managed.get(key);
            Map<String, String> own = foreign.getOrDefault(key, properties);
            String scope = first(fill(entry.text("scope"), properties), rule == null ? "" : fill(rule.text("scope"), own));
            boolean runs = scope.isEmpty() || scope.equals("compile") || scope.equals("runtime");
            if (!runs || fill(entry.text("optional"), properties).equals("true")) {
                continue;
            }
            String version = first(fill(entry.text("version"), properties), rule == null ? "" : fill(rule.text("version"), own));
            Artifact found = artifact(entry, version);
            Set<String> excluded = new HashSet<>(exclusions(entry));
            if (rule != null) {
                excluded.addAll(exclusions(rule));
            }
            needed.add(new Dependency(found, excluded));
        }
        return needed;
    }

    private Artifact artifact(Xml entry, String version) {
        Matcher range = RANGE.matcher(version);
        String chosen = range.matches() ? first(range.group(1) == null ? "" : range.group(1), range.group(2)) : version;
        Artifact found = new Artifact(
                fill(entry.text("groupId"), properties),
                fill(entry.text("artifactId"), properties),
                chosen,
                fill(entry.text("classifier"), properties));
        if (chosen.isEmpty() || found.toString().matches(".*[^A-Za-z0-9._:+-].*")) {
            throw new Failure(artifact + " needs " + found + ", whose coordinates cannot be resolved");
        }
        return found;
    }

    private Set<String> exclusions(Xml entry) {
        Set<String> excluded = new HashSet<>();
        for (Xml exclusion : entry.child("exclusions").children()) {
            excluded.add(fill(exclusion.text("groupId"), properties) + ":" + first(fill(exclusion.text("artifactId"), properties), "*"));
        }
        return excluded;
    }

    private Artifact coordinate(Xml entry) {
        return artifact(entry, fill(entry.text("version"), properties));
    }

    private Artifact movedTo(Xml moved) {
        return new Artifact(
                first(fill(moved.text("groupId"), properties), artifact.group),
                first(fill(moved.text("artifactId"), properties), artifact.name),
                first(fill(moved.text("version"), properties), artifact.version),
                artifact.classifier);
    }

    private String key(Xml entry) {
        return fill(entry.text("groupId") + ":" + entry.text("artifactId") + ":" + entry.text("classifier"), properties);
    }

    private static String fill(String text, Map<String, String> properties) {
        for (int round = 0; round < DEEPEST && text.contains("${"); round++) {
            text = PLACEHOLDER.matcher(text).replaceAll(found ->
                    Matcher.quoteReplacement(properties.getOrDefault(found.group(1), found.group())));
        }
        return text;
    }

    private static String first(String text, String otherwise) {
        return text.isEmpty() ? otherwise : text;
    }
}
