package vectors;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Passes frames between a caller and a server and hands each one to Frames. It cuts the stream at the length words, so what
 * is recorded is exactly what either side wrote.
 */
final class Proxy implements Closeable {
    private final ServerSocket listener;
    private final InetSocketAddress server;
    private final Frames frames;
    private volatile String caller;

    /** caller names who connects here, as it is written into the index. */
    Proxy(String listenHost, int listenPort, InetSocketAddress server, Frames frames, String caller) throws IOException {
        this.listener = new ServerSocket(listenPort, 64, InetAddress.getByName(listenHost));
        this.server = server;
        this.frames = frames;
        this.caller = caller;
        start(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    void caller(String name) {
        caller = name;
    }

    private static void start(Runnable r) {
        Thread t = new Thread(r);
        t.setDaemon(true);
        t.start();
    }

    private void accept() {
        while (true) {
            Socket in;
            try {
                in = listener.accept();
            } catch (IOException closed) {
                return;
            }
            try {
                Socket out = new Socket();
                out.connect(server, 3000);
                in.setTcpNoDelay(true);
                out.setTcpNoDelay(true);
                // Opaques are per connection and per asking side, so each direction has its own table of open questions.
                Map<Integer, Integer> askedByCaller = new ConcurrentHashMap<>();
                Map<Integer, Integer> askedByServer = new ConcurrentHashMap<>();
                String name = caller;
                start(() -> pump(in, out, name + " to server", name, askedByCaller, askedByServer));
                start(() -> pump(out, in, "server to " + name, name, askedByServer, askedByCaller));
            } catch (IOException refused) {
                closeQuietly(in);
            }
        }
    }

    private void pump(Socket from, Socket to, String way, String name, Map<Integer, Integer> mine, Map<Integer, Integer> theirs) {
        try (DataInputStream in = new DataInputStream(from.getInputStream()); OutputStream out = to.getOutputStream()) {
            while (true) {
                int n = in.readInt();
                byte[] frame = new byte[4 + n];
                frame[0] = (byte) (n >>> 24);
                frame[1] = (byte) (n >>> 16);
                frame[2] = (byte) (n >>> 8);
                frame[3] = (byte) n;
                in.readFully(frame, 4, n);
                // Recorded before it is passed on: an answer can then never overtake its question in the table.
                frames.seen(frame, name, way, mine, theirs);
                out.write(frame);
                out.flush();
            }
        } catch (EOFException end) {
            // the peer closed between two frames
        } catch (IOException broken) {
            // connections are cut when a child is ended
        } finally {
            closeQuietly(from);
            closeQuietly(to);
        }
    }

    private static void closeQuietly(Closeable c) {
        try {
            c.close();
        } catch (IOException ignored) {
            // nothing is left to save
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }
}
