// Options of `lumen serve`.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"--host", "serve", "Address to listen at; 0.0.0.0 and :: are all of this machine"}
        .with_default()
        .takes("ADDRESS")
        .as_variable("LUMEN_SERVE_HOST"),
    Setting{"--port", "serve", "0 takes one that is free"}.with_default().from(0, 65535).as_variable(
        "LUMEN_SERVE_PORT"),
    Setting{"--api-key", "serve", "Key that clients must send (Authorization: Bearer KEY); repeatable"}.takes("KEY"),
    Setting{"--api-key-file", "serve", "File with such keys, one each line"}
        .under("HTTP")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--allow-host", "serve",
            "Further name that requests may use for this server (Host); on the local machine other names are "
            "refused; repeatable"}
        .under("HTTP")
        .takes("NAME"),
    Setting{"--cors", "serve",
            "Origin of pages that may send requests and read answers, like https://chat.example; '*' is every page; "
            "repeatable"}
        .under("HTTP")
        .takes("ORIGIN"),
    Setting{"--tls-cert", "serve", "Certificate in PEM, with those it rests on: HTTPS alone"}
        .under("HTTP")
        .reading(Reads::file)
        .takes("FILE"),
    Setting{"--tls-key", "serve", "Its private key in PEM"}.under("HTTP").reading(Reads::file).takes("FILE"),
    Setting{"--connections", "serve", "At once; more are told 503"}.under("HTTP").with_default().from(1, 10'000),
    Setting{"--client-connections", "serve", "At once of one address; more are told 503; 0: as many as come"}
        .under("HTTP")
        .with_default()
        .from(0, 10'000),
    Setting{"--client-rate", "serve",
            "Requests a second of one key, or of one address where there are no keys; more are told 429; 0: as many as "
            "come"}
        .under("HTTP")
        .with_default()
        .from(0, 1e6),
    Setting{"--body", "serve", "Bytes of a request at most"}.under("HTTP").with_default().takes("SIZE"),
    Setting{"--timeout", "serve",
            "Seconds in which a request must be there, a piece of an answer be taken, and a connection be used"}
        .under("HTTP")
        .with_default()
        .from(0.1, 3600),
    Setting{"--drain", "serve", "Seconds that requests may still take after SIGTERM or Ctrl-C"}
        .under("HTTP")
        .with_default()
        .from(0, 86400),
    Setting{"--strict", "serve", "Refuse requests with fields that have no effect here, instead of ignoring them"}
        .under("Requests"),
    Setting{"--log-json", "serve", "A JSON object for each request on standard error"}.under("HTTP"),
    Setting{"--parallel,--np", "serve", "Sequences generated at once (also -np)"}.with_default(),
    Setting{"--queue", "serve", "Sequences that may wait; further requests get status 429"}
        .under("Requests")
        .with_default()
        .from(1, 100'000),
    Setting{"--keep-sequences,--keep-texts", "serve",
            "Ended sequences whose pages are kept for prompts with the same prefix, while there is room"}
        .under("Context and cache")
        .with_default()
        .from(0, 256),
    Setting{"--prefix-cache", "serve",
            "Folder where prompt prefixes are kept beyond this process, for prompts that begin alike"}
        .under("Context and cache")
        .as_variable("LUMEN_PREFIX_CACHE")
        .writing(Writes::folder_of_cache)
        .takes("DIR"),
    Setting{"--prefix-cache-size", "serve", "Of all its files; those that were not asked for the longest make room"}
        .under("Context and cache")
        .with_default()
        .takes("SIZE"),
    Setting{"-c,--ctx-size", "serve",
            "Tokens of the cache, of all sequences together; 0: 1024 for each sequence at once, and the model's "
            "context up to 4096"}
        .with_default()
        .from(0),
    Setting{"-b,--batch-size", "serve", "Prompt tokens computed between two tokens of the others"}
        .under("Context and cache")
        .with_default()
        .from(1, 1 << 24),
    Setting{"--max-tokens", "serve", "Tokens that an output may have; 0: as many as fit"}
        .under("Requests")
        .with_default()
        .from(0),
    Setting{"--max-n,--max-texts", "serve", "Outputs that a request may ask for, 'n' for each of its prompts"}
        .under("Requests")
        .with_default()
        .from(1, 4096),
    Setting{"--seconds", "serve", "Seconds that a request may take; then its outputs end as they are"}
        .under("Requests")
        .with_default()
        .from(0.1, 1e6),
    Setting{"--chat-template", "serve", "Name or file of a template, in place of the model's own"}
        .reading(Reads::file)
        .takes("NAME"),
    Setting{"--pooling", "serve", "How embeddings are pooled, where the model does not say: mean, cls, last"}
        .under("Requests")
        .one_of("mean cls last"),
    Setting{"--alias,--served-model-name", "serve",
            "Names of the model, with commas between: answers have the first, requests may have any"}
        .under("Requests")
        .takes("NAME"),
    Setting{"--adapter", "serve",
            "Adapter that requests choose as 'model': NAME; a GGUF file or a PEFT folder; repeatable"}
        .under("Adapters")
        .reading(Reads::model)
        .takes("NAME=FILE[=SCALE]"),
    Setting{"-m,--model,model", "serve",
            "GGUF file or Hugging Face folder, which may have a NAME= in front; repeatable"}
        .reading(Reads::model)
        .required()
        .takes("[NAME=]FILE"),
};

}  // namespace

std::span<const Setting> serving_rows() {
  return kRows;
}

}  // namespace lumen::cli
