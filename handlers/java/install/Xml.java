import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.List;
import javax.xml.parsers.DocumentBuilder;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.parsers.ParserConfigurationException;
import org.w3c.dom.Element;
import org.w3c.dom.Node;
import org.xml.sax.InputSource;
import org.xml.sax.SAXException;
import org.xml.sax.helpers.DefaultHandler;

/** An element, or the absence of one, which has no children and no text. */
class Xml {
    private final Element element;

    private Xml(Element element) {
        this.element = element;
    }

    static Xml parse(byte[] content) throws IOException {
        try {
            DocumentBuilder builder = DocumentBuilderFactory.newInstance().newDocumentBuilder();
            builder.setEntityResolver((name, place) -> new InputSource(new StringReader("")));
            builder.setErrorHandler(new DefaultHandler());
            return new Xml(builder.parse(new ByteArrayInputStream(content)).getDocumentElement());
        } catch (ParserConfigurationException | SAXException error) {
            throw new Failure("the index has a file that is not XML: " + error.getMessage());
        }
    }

    List<Xml> children() {
        List<Xml> children = new ArrayList<>();
        for (Node node = element == null ? null : element.getFirstChild(); node != null; node = node.getNextSibling()) {
            if (node instanceof Element) {
                children.add(new Xml((Element) node));
            }
        }
        return children;
    }

    Xml child(String name) {
        return children().stream().filter(child -> child.name().equals(name)).findFirst().orElse(new Xml(null));
    }

    boolean exists() {
        return element != null;
    }

    String name() {
        return element.getTagName();
    }

    String text() {
        return element == null ? "" : element.getTextContent().strip();
    }

    String text(String child) {
        return child(child).text();
    }
}
