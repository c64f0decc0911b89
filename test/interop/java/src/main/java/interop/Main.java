package interop;

/** Sends or consumes with Apache's client. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 time is up. */
public final class Main {
    private Main() { }

    public static void main(String[] args) {
        int code;
        try {
            code = run(args);
        } catch (IllegalArgumentException e) {
            System.err.println(e.getMessage());
            code = 2;
        } catch (Throwable e) {
            e.printStackTrace();
            code = 1;
        }
        System.out.flush();
        // The clients leave threads behind that are no daemons.
        System.exit(code);
    }

    private static int run(String[] args) throws Exception {
        if (args.length == 0) {
            throw new IllegalArgumentException("usage: produce|consume --namesrv ADDR --topic NAME …");
        }
        Options o = new Options(args);
        switch (args[0]) {
            case "produce":
                return new Produce(o).run();
            case "consume":
                return new Consume(o).run();
            default:
                throw new IllegalArgumentException("unknown command " + args[0]);
        }
    }
}
