package protocol

// A Language tells what a peer is written in. Servers answer C++ clients with
// other table forms; otherwise it is only shown to operators.
type Language int8

// The languages of the RocketMQ remoting protocol, in the numbers of the binary
// header. The JSON header carries their names.
const (
	LanguageJava Language = iota
	LanguageCPP
	LanguageDotNet
	LanguagePython
	LanguageDelphi
	LanguageErlang
	LanguageRuby
	LanguageOther
	LanguageHTTP
	LanguageGo
	LanguagePHP
	LanguageOMS
	LanguageRust
	LanguageNodeJS
)

var languageNames = [...]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER",
	"HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// String returns the name that the JSON header carries; a number without a name
// is "OTHER", the only name that every peer can read for it.
func (l Language) String() string {
	if l < 0 || int(l) >= len(languageNames) {
		return "OTHER"
	}
	return languageNames[l]
}

// parseLanguage returns OTHER for an unknown name: a peer newer than this table
// is no reason to refuse its request.
func parseLanguage(name []byte) Language {
	for i, n := range languageNames {
		if string(name) == n {
			return Language(i)
		}
	}
	return LanguageOther
}

// Versions as numbers of the wire. A peer's version decides what it can read.
const (
	Version3_0_7   = 28  // knows the broker's reset-offset push
	Version3_0_11  = 37  // registers with RegisterBrokerBody, older ones with the topic table alone
	Version3_4_9   = 121 // sends maxReconsumeTimes
	Version4_9_4   = 401 // reads strict JSON routes, older ones fastjson's form
	Version5_0_0   = 413 // compressed registrations carry the static-topic section
	Version5_3_1   = 475 // newer ones understand GO_AWAY
	CurrentVersion = 479 // V5_3_3: what this implementation says it is
)

// Bits of Command.Flag (RocketMQ remoting protocol, "flags").
const (
	FlagResponse int32 = 1
	FlagOneWay   int32 = 2 // a request that must not be answered
)
