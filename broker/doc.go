// Package broker is the role that stores and serves messages: it joins the
// remoting protocol to a spool.
//
// A send goes reader → sender → spool.Append → spool.WaitDurable → answer, on
// the goroutine that reads the connection; a pull goes reader → puller →
// spool.Read → answer. Each part holds only what it needs; Broker is the list of
// its parts. The sidecar embeds this engine and adds doors and lanes.
package broker
