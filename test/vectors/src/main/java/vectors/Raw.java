package vectors;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Asks what no stock client asks any more: with the version of an old client, or with names a client refuses. */
final class Raw {
    private Raw() { }

    static RemotingCommand call(String host, int port, int code, int version, LanguageCode language, Map<String, String> fields, byte[] body)
        throws Exception {
        RemotingCommand c = RemotingCommand.createRequestCommand(code, null);
        c.setVersion(version);
        c.setLanguage(language);
        if (fields != null) {
            fields.forEach(c::addExtField);
        }
        c.setBody(body);
        ByteBuffer frame = c.encode();
        try (Socket s = new Socket(host, port)) {
            s.setSoTimeout(10_000);
            s.getOutputStream().write(frame.array(), frame.arrayOffset() + frame.position(), frame.remaining());
            DataInputStream in = new DataInputStream(s.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            return RemotingCommand.decode(ByteBuffer.wrap(answer));
        } catch (IOException e) {
            throw new IOException("code " + code + " version " + version, e);
        }
    }
}
