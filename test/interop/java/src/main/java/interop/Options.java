package interop;

import java.util.HashMap;
import java.util.Map;

/** Options of the form --name value, after the command. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        for (int i = 1; i < args.length; i += 2) {
            if (!args[i].startsWith("--") || i + 1 == args.length) {
                throw new IllegalArgumentException("expected --name value, found " + args[i]);
            }
            values.put(args[i].substring(2), args[i + 1]);
        }
    }

    String need(String name) {
        String v = values.get(name);
        if (v == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return v;
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        String v = values.get(name);
        return v == null ? otherwise : Integer.parseInt(v);
    }
}
