// Options of `lumen serve`.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"--host", "serve", "Address to listen on; 0.0.0.0 and :: mean all addresses of this machine"}
        .with_default()
        .takes("ADDRESS")
        .as_variable("LUMEN_SERVE_HOST"),
    Setting{"--port", "serve", "Port to listen on; 0: any free port"}.with_default().from(0, 65535).as_variable(
        "LUMEN_SERVE_PORT"),
    Setting{"--api-key", "serve", "Key that clients must send (Authorization: Bearer KEY); repeatable"}.takes("KEY"),
    Setting{"--api-key-file", "serve", "File with such keys, one on each line"}.under("HTTP").reading(Reads::file,
                                                                                                      "FILE"),
    Setting{"--allow-host", "serve",
            "Additional name that requests may use for this server (Host); a server on the local machine refuses other "
            "names; repeatable"}
        .under("HTTP")
        .takes("NAME"),
    Setting{"--cors", "serve",
            "Origin of web pages that may use this server, such as https://chat.example; '*': every page; repeatable"}
        .under("HTTP")
        .takes("ORIGIN"),
    Setting{"--tls-cert", "serve", "Certificate chain in PEM; the server then accepts HTTPS only"}
        .under("HTTP")
        .reading(Reads::file, "FILE"),
    Setting{"--tls-key", "serve", "Private key of the certificate, in PEM"}.under("HTTP").reading(Reads::file, "FILE"),
    Setting{"--connections", "serve", "Most connections at once; further ones get status 503"}
        .under("HTTP")
        .with_default()
        .from(1, 10'000),
    Setting{"--client-connections", "serve",
            "Most connections at once from one address; further ones get status 503; 0: no limit"}
        .under("HTTP")
        .with_default()
        .from(0, 10'000),
    Setting{"--client-rate", "serve",
            "Most requests per second with one key, or from one address without keys; further ones get status 429; 0: "
            "no limit"}
        .under("HTTP")
        .with_default()
        .from(0, 1e6),
    Setting{"--body", "serve", "Largest request, in bytes; without it 8M, and 32M where a model reads pictures"}
        .under("HTTP")
        .takes("SIZE"),
    Setting{"--timeout", "serve",
            "Seconds for a client to send a request, to read a part of an answer, or to leave a connection unused"}
        .under("HTTP")
        .with_default()
        .from(0.1, 3600),
    Setting{"--drain", "serve", "Seconds for running requests to finish after SIGTERM or Ctrl-C"}
        .under("HTTP")
        .with_default()
        .from(0, 86400),
    Setting{"--strict", "serve", "Refuse requests with fields that Lumen would ignore"}.under("Requests"),
    Setting{"--log-json", "serve", "Log each request as a JSON object on standard error"}.under("HTTP"),
    Setting{"--parallel,--np", "serve", "Sequences generated at once (also -np)"}.with_default(),
    Setting{"--queue", "serve", "Most sequences that wait; further requests get status 429"}
        .under("Requests")
        .with_default()
        .from(1, 100'000),
    Setting{"--keep-sequences,--keep-texts", "serve",
            "Finished sequences whose cache pages are kept for prompts with the same prefix, as long as there is room"}
        .under("Context and cache")
        .with_default()
        .from(0, 256),
    Setting{"--prefix-cache", "serve", "Folder that keeps prompt prefixes between starts of the server"}
        .under("Context and cache")
        .as_variable("LUMEN_PREFIX_CACHE")
        .writing(Writes::folder_of_cache, "DIR"),
    Setting{"--prefix-cache-size", "serve", "Size of that folder; the least recently used prefixes are deleted first"}
        .under("Context and cache")
        .with_default()
        .takes("SIZE"),
    Setting{"-c,--ctx-size", "serve",
            "Tokens of the KV cache, shared by all sequences; 0: 1024 for each parallel sequence, and at least the "
            "model's context up to 4096"}
        .with_default()
        .from(0),
    Setting{"-b,--batch-size", "serve", "Prompt tokens computed between two tokens of the other sequences"}
        .under("Context and cache")
        .with_default()
        .from(1, 1 << 24),
    Setting{"--max-tokens", "serve", "Most tokens of an output; 0: as many as fit"}
        .under("Requests")
        .with_default()
        .from(0),
    Setting{"--max-n,--max-texts", "serve", "Most outputs of a request: 'n' times its prompts"}
        .under("Requests")
        .with_default()
        .from(1, 4096),
    Setting{"--seconds", "serve", "Most seconds of a request; after that its outputs end as they are"}
        .under("Requests")
        .with_default()
        .from(0.1, 1e6),
    Setting{"--chat-template", "serve", "Name or file of a chat template to use instead of the model's own"}.reading(
        Reads::file, "NAME"),
    Setting{"--pooling", "serve", "Pooling of embeddings if the model does not define it: mean, cls, last"}
        .under("Requests")
        .one_of("mean cls last"),
    Setting{"--pictures,!--no-pictures", "serve",
            "Load the part of a model that reads pictures, if it has one; --no-pictures serves its text part alone"}
        .under("Pictures"),
    Setting{"--media-path", "serve",
            "Folder whose files requests may name as pictures, by file: URLs and paths; repeatable"}
        .under("Pictures")
        .reading(Reads::folder, "DIR"),
    Setting{"--image-urls", "serve",
            "Whether pictures are fetched from other servers: off, on (public addresses), any (private ones as well)"}
        .under("Pictures")
        .with_default()
        .one_of("off on any"),
    Setting{"--max-images", "serve", "Most pictures of a request"}.under("Pictures").with_default().from(1, 1000),
    Setting{"--image-size", "serve", "Largest file of a picture"}.under("Pictures").with_default().takes("SIZE"),
    Setting{"--image-pixels", "serve", "Most pixels of a picture, width times height"}
        .under("Pictures")
        .with_default()
        .from(1, 1 << 30),
    Setting{"--alias,--served-model-name", "serve",
            "Names of the model, separated by commas: answers have the first, requests may use any"}
        .under("Requests")
        .takes("NAME"),
    Setting{"--adapter", "serve",
            "Adapter that requests select as 'model': NAME=PATH of a GGUF file or a PEFT folder; repeatable"}
        .under("Adapters")
        .reading(Reads::model, "NAME=FILE[=SCALE]"),
    Setting{"-m,--model,model", "serve", "GGUF file or Hugging Face folder, optionally as NAME=PATH; repeatable"}
        .reading(Reads::model, "[NAME=]FILE")
        .required(),
};

}  // namespace

std::span<const Setting> serving_rows() {
  return kRows;
}

}  // namespace lumen::cli
