/** The reason why libraries cannot be installed; the message is for the caller. */
class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;

    Failure(String message) {
        super(message);
    }
}
