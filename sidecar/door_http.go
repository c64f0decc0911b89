package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// httpDoor takes messages over HTTP and shows health and metrics:
//
//	POST /v1/topics/{topic}/messages   one message, or one a line as NDJSON
//	GET  /healthz  /readyz  /metrics
//
// A 200 answer means that every message of the request is durable.
type httpDoor struct {
	listener net.Listener
	server   *http.Server
	put      putFunc
	queues   func(topic string) int // queues of a local topic, to choose by ordering key
	maxBody  int64
	room     bodyRoom

	maxMessage int
	log        *slog.Logger
}

// putFunc stores messages of one topic durably; it is the engine's Put.
type putFunc func(ctx context.Context, topic string, from netip.AddrPort, messages []message.Message) ([]broker.PutResult, error)

func newHTTPDoor(o Options, put putFunc, queues func(string) int, health *health, metrics http.Handler) (*httpDoor, error) {
	listener, err := net.Listen("tcp", o.HTTP.Listen)
	if err != nil {
		return nil, fmt.Errorf("open the HTTP door: %w", err)
	}
	d := &httpDoor{listener: listener, put: put, queues: queues, maxBody: o.HTTP.MaxBody, maxMessage: o.MaxMessage, log: o.Logger}
	d.room.limit = max(2*o.HTTP.MaxBody, minBodyRoom)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/topics/{topic}/messages", d.postMessages)
	mux.HandleFunc("GET /healthz", health.serveHealth)
	mux.HandleFunc("GET /readyz", health.serveReady)
	mux.Handle("GET /metrics", metrics)
	d.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return d, nil
}

func (d *httpDoor) run(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if d.server.Shutdown(grace) != nil {
			_ = d.server.Close()
		}
	}()
	err := d.server.Serve(d.listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("HTTP door: %w", err)
}

// A StoredMessage is the answer for one message.
type StoredMessage struct {
	ID     string `json:"id"`     // the message's unique key, the same upstream
	Queue  int32  `json:"queue"`  // local queue
	Offset int64  `json:"offset"` // offset in that queue
}

func (d *httpDoor) postMessages(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	if err := message.ValidateTopic(topic); err != nil {
		refuse(w, http.StatusBadRequest, protocol.InvalidParameter, err)
		return
	}
	room := &allowance{room: &d.room}
	defer room.giveBack()
	body, err := io.ReadAll(room.reader(http.MaxBytesReader(w, r.Body, d.maxBody)))
	if err != nil {
		refuseBody(w, err)
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	batch := kind == "application/x-ndjson" || kind == "application/ndjson"
	posted, err := parse(r, body, batch)
	if err != nil {
		refuse(w, http.StatusBadRequest, protocol.MessageIllegal, err)
		return
	}
	for _, m := range posted {
		if size := len(m.message.Body); size > d.maxMessage {
			refuse(w, http.StatusRequestEntityTooLarge, protocol.MessageIllegal,
				fmt.Errorf("the message body of %d bytes is over the limit of %d", size, d.maxMessage))
			return
		}
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	stored, err := d.store(r.Context(), topic, from, posted)
	if err != nil {
		e := protocol.AsError(err)
		refuse(w, httpStatus(e.Code), e.Code, errors.New(e.Remark))
		return
	}
	if batch {
		answer(w, http.StatusOK, map[string]any{"messages": stored})
	} else {
		answer(w, http.StatusOK, stored[0])
	}
}

func parse(r *http.Request, body []byte, batch bool) ([]postedMessage, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	if err := checkAttributes(r, query, batch); err != nil {
		return nil, err
	}
	if batch {
		return parseLines(body)
	}
	return parseSingle(r, query, body)
}

// refuseBody answers a request whose body could not be read whole. Silence would
// become a 200, and a 200 says "stored".
func refuseBody(w http.ResponseWriter, err error) {
	tooBig := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &tooBig):
		refuse(w, http.StatusRequestEntityTooLarge, protocol.MessageIllegal,
			fmt.Errorf("the request body is over the limit of %d bytes", tooBig.Limit))
	case errors.Is(err, errNoRoom):
		w.Header().Set("Connection", "close") // the rest of the body is not waited for
		refuse(w, http.StatusTooManyRequests, protocol.SystemBusy, err)
	default:
		refuse(w, http.StatusBadRequest, protocol.MessageIllegal, fmt.Errorf("the request body ended early: %w", err))
	}
}

// store puts the messages in as one burst. Messages with the same ordering key
// share a queue and so keep their order; those without go together to a queue
// that the engine chooses.
func (d *httpDoor) store(ctx context.Context, topic string, from netip.AddrPort, posted []postedMessage) ([]StoredMessage, error) {
	messages := make([]message.Message, len(posted))
	for i, p := range posted {
		messages[i] = p.message
		messages[i].QueueID = -1
		if p.OrderingKey != "" {
			messages[i].QueueID = queueOf(p.OrderingKey, d.queues(topic))
		}
	}
	results, err := d.put(ctx, topic, from, messages)
	if err != nil {
		return nil, err
	}
	stored := make([]StoredMessage, len(results))
	for i, r := range results {
		stored[i] = StoredMessage{ID: r.UniqueKey, Queue: r.QueueID, Offset: r.QueueOffset}
	}
	return stored, nil
}

// queueOf maps an ordering key to a queue as Java's select-by-hash does, so that
// a producer of either kind maps a key to the same queue.
func queueOf(key string, queues int) int32 {
	hash := int32(message.TagHash([]byte(key)))
	queue := int(hash) % max(queues, 1)
	if queue < 0 {
		queue = -queue
	}
	return int32(queue)
}

// httpStatus maps an engine's code to a status that HTTP clients act on rightly:
// 4xx do not send again, 5xx send again later.
func httpStatus(code protocol.ResponseCode) int {
	switch code {
	case protocol.MessageIllegal, protocol.InvalidParameter:
		return http.StatusBadRequest
	case protocol.NoPermission:
		return http.StatusForbidden
	case protocol.TopicNotExist:
		return http.StatusNotFound
	case protocol.ServiceNotAvailable:
		return http.StatusInsufficientStorage
	case protocol.SystemBusy:
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

func refuse(w http.ResponseWriter, status int, code protocol.ResponseCode, err error) {
	answer(w, status, map[string]any{"error": err.Error(), "code": int32(code)})
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
