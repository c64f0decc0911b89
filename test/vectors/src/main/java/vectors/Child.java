package vectors;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A child JVM with its own home directory, ended by its own process handle. */
final class Child {
    private static final List<String> OPENS = List.of(
        "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED");

    private final Process process;
    private final Path out;

    private Child(Process process, Path out) {
        this.process = process;
        this.out = out;
    }

    /** Runs main in dir. The home is "." so that recorded bodies name no directory of this machine. */
    static Child start(Path dir, String log, String classPath, String coding, String main, String... args) throws IOException {
        List<String> cmd = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-Xmx512m", "-Xms64m", "-Duser.home=.",
            "-Drocketmq.serialize.type=" + coding, "-Drocketmq.client.logUseSlf4j=false",
            "-Dio.netty.tryReflectionSetAccessible=true"));
        cmd.addAll(OPENS);
        for (String a : List.of(args)) {
            if (a.startsWith("-D")) {
                cmd.add(a);
            }
        }
        cmd.addAll(List.of("-cp", classPath, main));
        for (String a : List.of(args)) {
            if (!a.startsWith("-D")) {
                cmd.add(a);
            }
        }
        Path out = dir.resolve(log + ".out");
        ProcessBuilder b = new ProcessBuilder(cmd).directory(dir.toFile()).redirectErrorStream(true).redirectOutput(out.toFile());
        b.environment().put("ROCKETMQ_HOME", ".");
        b.environment().remove("NAMESRV_ADDR");
        Process p = b.start();
        Runtime.getRuntime().addShutdownHook(new Thread(p::destroyForcibly));
        return new Child(p, out);
    }

    static Child nameServer(Path dir, String classPath, String coding, int port) throws Exception {
        Path conf = properties(dir.resolve("namesrv.properties"), Map.of("listenPort", "" + port, "bindAddress", "127.0.0.1",
            "kvConfigPath", "namesrv/kvConfig.json", "configStorePath", "namesrv/namesrv.properties"));
        Child c = start(dir, "namesrv", classPath, coding, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf.getFileName().toString());
        c.await("boot success");
        return c;
    }

    static Child broker(Path dir, String classPath, String coding, Map<String, String> settings) throws Exception {
        Path conf = properties(dir.resolve("broker.properties"), settings);
        Child c = start(dir, "broker", classPath, coding, "org.apache.rocketmq.broker.BrokerStartup", "-c", conf.getFileName().toString());
        c.await("boot success");
        return c;
    }

    private static Path properties(Path file, Map<String, String> settings) throws IOException {
        List<String> lines = new ArrayList<>();
        settings.forEach((k, v) -> lines.add(k + "=" + v));
        return Files.write(file, lines);
    }

    /** Returns when the child has printed text; fails when it ends before. */
    void await(String text) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!output().contains(text)) {
            if (process.waitFor(50, TimeUnit.MILLISECONDS) || System.nanoTime() > deadline) {
                throw new IOException(out.getFileName() + " did not print \"" + text + "\":\n" + output());
            }
        }
    }

    String output() throws IOException {
        return new String(Files.readAllBytes(out), StandardCharsets.UTF_8);
    }

    /** Waits for a child that ends by itself. */
    int end(int seconds) throws InterruptedException {
        if (!process.waitFor(seconds, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            return -1;
        }
        return process.exitValue();
    }

    /** A clean stop: SIGTERM, then wait. */
    void stop() throws InterruptedException {
        process.destroy();
        end(60);
    }

    /** SIGKILL: what a crash leaves. */
    void kill() throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
    }

    /** A port that nobody uses, nor those two below and one above, which a broker takes as well. */
    static int freePort() throws IOException {
        while (true) {
            int port = probe(0);
            if (probe(port - 2) > 0 && probe(port + 1) > 0) {
                return port;
            }
        }
    }

    private static int probe(int port) throws IOException {
        try (ServerSocket s = new ServerSocket(port, 1, InetAddress.getByName("127.0.0.1"))) {
            return s.getLocalPort();
        } catch (java.net.BindException taken) {
            return -1;
        }
    }
}
