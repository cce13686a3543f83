import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLConnection;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** A Maven repository; downloaded files are kept. */
class Repository {
    private static final int WAIT = 60_000;

    private final String index;
    private final Path cache;

    Repository(String index, Path cache) {
        this.index = index.endsWith("/") ? index : index + "/";
        this.cache = cache;
    }

    /** A file of an artifact, checked against its checksum if the index has one; null when there is no such file. */
    Path fetch(Artifact artifact, String ending) throws IOException {
        String path = artifact.path(ending);
        Path kept = cache.resolve(path);
        if (!Files.exists(kept)) {
            byte[] content = read(path);
            if (content == null) {
                return null;
            }
            byte[] checksum = read(path + ".sha1");
            if (checksum != null && !new String(checksum, StandardCharsets.UTF_8).toLowerCase().contains(sha1(content))) {
                throw new Failure(artifact + ": the file in the index is damaged: its checksum differs");
            }
            Files.createDirectories(kept.getParent());
            Files.write(kept, content);
        }
        return kept;
    }

    /** The newest version that the index names; empty when it names none. */
    String newest(Artifact artifact) throws IOException {
        byte[] content = read(artifact.folder() + "/maven-metadata.xml");
        if (content == null) {
            return "";
        }
        Xml versioning = Xml.parse(content).child("versioning");
        String release = versioning.text("release");
        return release.isEmpty() ? versioning.text("latest") : release;
    }

    private byte[] read(String path) throws IOException {
        URLConnection connection = new URL(index + path).openConnection();
        connection.setConnectTimeout(WAIT);
        connection.setReadTimeout(WAIT);
        try (InputStream content = connection.getInputStream()) {
            return content.readAllBytes();
        } catch (FileNotFoundException absent) {
            return null;
        } catch (IOException failure) {
            throw new Failure("the index cannot be read: " + failure.getMessage());
        }
    }

    private static String sha1(byte[] content) {
        try {
            StringBuilder text = new StringBuilder();
            for (byte part : MessageDigest.getInstance("SHA-1").digest(content)) {
                text.append(String.format("%02x", part));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
