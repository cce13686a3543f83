/** The artifact that a Maven coordinate names. */
class Artifact {
    final String group;
    final String name;
    final String version;
    final String classifier;

    Artifact(String group, String name, String version, String classifier) {
        this.group = group;
        this.name = name;
        this.version = version;
        this.classifier = classifier;
    }

    static Artifact parse(String coordinate) {
        String[] parts = coordinate.split(":");
        return new Artifact(parts[0], parts[1], parts[2], "");
    }

    /** The coordinate without the version: a program has at most one version of each. */
    String key() {
        return group + ":" + name + (classifier.isEmpty() ? "" : ":" + classifier);
    }

    String folder() {
        return group.replace('.', '/') + "/" + name;
    }

    String path(String ending) {
        return folder() + "/" + version + "/" + name + "-" + version + ending;
    }

    String jarEnding() {
        return (classifier.isEmpty() ? "" : "-" + classifier) + ".jar";
    }

    @Override
    public String toString() {
        return group + ":" + name + ":" + version + (classifier.isEmpty() ? "" : ":" + classifier);
    }
}
