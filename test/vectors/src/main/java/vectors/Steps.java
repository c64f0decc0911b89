package vectors;

import java.util.ArrayList;
import java.util.List;

/** Runs named steps one after the other; one that fails is reported and does not stop the rest, since its frames count too. */
final class Steps {
    interface Step {
        void run() throws Throwable;
    }

    private final List<String> failed = new ArrayList<>();

    void step(String name, Step s) {
        long start = System.nanoTime();
        try {
            s.run();
            System.out.printf("%-40s ok %d ms%n", name, (System.nanoTime() - start) / 1_000_000);
        } catch (Throwable t) {
            failed.add(name);
            System.out.printf("%-40s %s%n", name, t);
        }
    }

    void report() {
        System.out.println(failed.isEmpty() ? "all steps passed" : "steps that failed: " + failed);
    }
}
