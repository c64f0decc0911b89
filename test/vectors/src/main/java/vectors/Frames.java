package vectors;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * Keeps a few frames of every request code, coding and kind. Two frames have the same shape when they carry the same fields;
 * one of each shape is kept, up to a limit per code and caller.
 */
final class Frames {
    private static final int PER_KIND = 3;

    private record Entry(String coding, int code, String kind, String way, String caller, int version, int status, byte[] frame) { }

    private final Map<Integer, String> names = new HashMap<>();
    private final List<Entry> entries = new ArrayList<>();
    private final Set<String> shapes = new HashSet<>();
    private final Map<String, Integer> kept = new HashMap<>();

    Frames() throws IllegalAccessException {
        for (Field f : RequestCode.class.getFields()) {
            if (Modifier.isStatic(f.getModifiers()) && f.getType() == int.class) {
                names.putIfAbsent(f.getInt(null), f.getName());
            }
        }
    }

    /** Called for each frame that passes; mine holds what the frame's sender asked, theirs what its receiver asked. */
    synchronized void seen(byte[] frame, String caller, String way, Map<Integer, Integer> mine, Map<Integer, Integer> theirs) {
        RemotingCommand c;
        try {
            c = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice());
        } catch (Exception e) {
            System.err.println("undecodable frame " + way + ": " + e);
            return;
        }
        String coding = frame[4] == 0 ? "json" : "binary";
        if (!c.isResponseType()) {
            int code = coding.equals("binary") ? widen(c.getCode()) : c.getCode();
            if (!c.isOnewayRPC()) {
                mine.put(c.getOpaque(), code);
            }
            keep(coding, code, "request", way, caller, c, frame);
            return;
        }
        Integer code = theirs.remove(c.getOpaque());
        if (code != null) {
            keep(coding, code, "response", way, caller, c, frame);
        }
    }

    /** The binary header has 16 bits for the code: 200050 arrives as 3442. */
    private int widen(int code) {
        if (names.containsKey(code)) {
            return code;
        }
        for (int known : names.keySet()) {
            if ((short) known == code) {
                return known;
            }
        }
        return code;
    }

    private void keep(String coding, int code, String kind, String way, String caller, RemotingCommand c, byte[] frame) {
        Set<String> fields = c.getExtFields() == null ? Set.of() : new TreeSet<>(c.getExtFields().keySet());
        boolean body = c.getBody() != null && c.getBody().length > 0;
        int status = kind.equals("response") ? c.getCode() : 0;
        String key = String.join("/", coding, Integer.toString(code), kind, caller);
        String shape = String.join("/", key, way, Integer.toString(status), fields.toString(), Boolean.toString(body),
            Integer.toString(c.getFlag()));
        if (kept.getOrDefault(key, 0) >= PER_KIND || !shapes.add(shape)) {
            return;
        }
        kept.merge(key, 1, Integer::sum);
        entries.add(new Entry(coding, code, kind, way, caller, c.getVersion(), status, frame));
    }

    /** Writes each frame to its own file and one index.json with a line for each. */
    synchronized void write(Path dir) throws IOException {
        Files.createDirectories(dir);
        Map<String, Entry> files = new TreeMap<>();
        for (Entry e : entries) {
            String name = names.getOrDefault(e.code, "UNKNOWN").toLowerCase().replace('_', '-');
            String stem = e.coding + "-" + e.code + "-" + name + "-" + e.kind;
            String file = stem + ".bin";
            for (int n = 2; files.containsKey(file); n++) {
                file = stem + "-" + n + ".bin";
            }
            files.put(file, e);
            Files.write(dir.resolve(file), e.frame);
        }
        StringBuilder index = new StringBuilder("[\n");
        String comma = "";
        for (Map.Entry<String, Entry> f : files.entrySet()) {
            Entry e = f.getValue();
            index.append(comma).append(String.format(
                "{\"file\":\"%s\",\"coding\":\"%s\",\"code\":%d,\"name\":\"%s\",\"direction\":\"%s\",\"way\":\"%s\",\"client\":\"%s\",\"version\":%d,\"status\":%d}",
                f.getKey(), e.coding, e.code, names.getOrDefault(e.code, "UNKNOWN"), e.kind, e.way, e.caller, e.version, e.status));
            comma = ",\n";
        }
        index.append("\n]\n");
        Files.write(dir.resolve("index.json"), index.toString().getBytes(StandardCharsets.UTF_8));
        System.out.println(files.size() + " frames of " + entries.stream().map(Entry::code).distinct().count() + " request codes");
    }
}
