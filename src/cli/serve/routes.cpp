#include "cli/serve/routes.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"

namespace lumen::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

// An error in the form of the API that the path belongs to.
HttpReply refused(const model::serve::Refusal& refusal, const std::string& path) {
  HttpReply out;
  out.status = refusal.status;
  switch (error_form(path)) {
    case ErrorForm::anthropic:
      out.body = model::serve::messages_error(refusal);
      break;
    case ErrorForm::ollama:
      out.body = model::serve::ollama_error(refusal);
      break;
    case ErrorForm::openai:
      out.body = refusal.body();
      break;
  }
  if (refusal.status == 429 || refusal.status == 503) out.headers.emplace_back("Retry-After", "1");
  if (refusal.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

// The key of "Bearer KEY", in which the scheme may have any case (RFC 9110, 11.1); nullopt if there is none.
std::optional<std::string> bearer_key(const std::string& authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i)
    if ((authorization[i] | (kScheme[i] == ' ' ? 0 : 0x20)) != kScheme[i]) return std::nullopt;
  const size_t begin = authorization.find_first_not_of(' ', kScheme.size());
  return begin == std::string::npos ? std::string() : authorization.substr(begin);
}

std::array<unsigned char, 32> digest_of(const std::string& text) {
  std::array<unsigned char, 32> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

// The answer to a request of Ollama's API that only loads a model.
HttpReply loaded(const HttpAsk& ask, Action action, const model::serve::ServedModel& model) {
  const ordered_json body = model::serve::request_object(ask.body);
  return json_reply(model::serve::ollama_loaded(action == Action::ollama_chat
                                                    ? model::serve::read_ollama_chat(body)
                                                    : model::serve::read_ollama_generate(body, model),
                                                now_seconds()));
}

}  // namespace

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

HttpReply json_reply(const ordered_json& value) {
  HttpReply out;
  out.body = model::serve::json_line(value);
  return out;
}

// A running GenerationRequest.
struct Routes::Running {
  std::unique_ptr<model::serve::Reply> reply;
  std::shared_ptr<model::serve::Answering> answering;
  Stopwatch watch;

  // The next piece; nullopt when there is none yet. Refusal when the client has disconnected.
  std::optional<model::serve::Delta> next(const HttpAsk& ask, Line* line) {
    std::optional<model::serve::Delta> delta = answering->next(kLook);
    if (delta && line->first < 0) line->first = watch.seconds();
    if (ask.is_gone()) {
      answering->cancel(model::serve::CancelReason::client_left);
      throw model::serve::Refusal(kClientLeft, "the client has left");
    }
    return delta;
  }
  void tell(Line* line) const {
    line->id = reply->id();
    line->prompt = reply->prompt_tokens();
    line->cached = reply->cached_tokens();
    line->from_disk = reply->disk_tokens();
    line->made = reply->made_tokens();
    line->ended = reply->endings();
  }
};

Routes::Routes(std::vector<Entry> entries, const RouteOptions& options)
    : entries_(std::move(entries)),
      log_json_(options.log_json),
      strict_(options.strict),
      started_(now_seconds()),
      slots_(options.slots),
      origins_(options.origins),
      prefixes_(options.prefixes),
      rates_(options.client_rate) {
  for (const std::string& key : options.keys) keys_.push_back(digest_of(key));
}

std::string Routes::refusal(int status, const std::string& message) {
  counts_.add("other", status);
  return model::serve::Refusal(status, message).body();
}

// Takes the same time for every wrong key, so that timing reveals nothing.
bool Routes::is_known(const std::string& authorization) const {
  if (keys_.empty()) return true;
  const std::optional<std::string> key = bearer_key(authorization);
  const Digest given = digest_of(key.value_or(""));
  bool known = false;
  for (const Digest& one : keys_) known |= CRYPTO_memcmp(one.data(), given.data(), one.size()) == 0;
  return known && key;
}

// By name or alias, also with the tag that Ollama's clients add; null if there is no such model.
const Routes::Entry* Routes::find_entry(const std::string& name) const {
  constexpr std::string_view kTag = ":latest";
  const std::string bare = name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name;
  for (const std::string& wanted : {name, bare})
    for (const Entry& entry : entries_)
      if (entry.model->name == wanted ||
          std::count(entry.model->aliases.begin(), entry.model->aliases.end(), wanted) > 0)
        return &entry;
  return nullptr;
}

// Clients send names of other models ("gpt-4o") where a server has only one, and no other can be meant.
const Routes::Entry& Routes::entry_of(const ordered_json& body) const {
  const std::string name = model::serve::request_model(body);
  if (const Entry* entry = find_entry(name)) return *entry;
  if (entries_.size() == 1 && (name.empty() || !strict_)) return entries_[0];
  throw model::serve::Refusal(404, name.empty() ? "which 'model'? /v1/models lists them" : "no such model: " + name,
                              "model", "model_not_found");
}

// Limits by API key where keys are in use, so that clients that share an address have separate budgets.
void Routes::check_rate(const HttpAsk& ask) {
  const std::string client = keys_.empty() ? ask.remote : ask.authorization;
  const double wait = rates_.ask(client, std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
  if (wait > 0)
    throw model::serve::Refusal(429, fmt::format("too many requests of this client; try again in {:.1f} s", wait), {},
                                "rate_limit_exceeded");
}

HttpReply Routes::answer(const HttpAsk& ask) {
  const Stopwatch watch;
  Line line;
  bool is_logged = false;  // a stream is logged by its writer, when it ends
  HttpReply reply;
  try {
    reply = answer_checked(ask, &line, &is_logged);
  } catch (const model::serve::Refusal& refusal) {
    reply = refused(refusal, ask.path);
    line.ended = refusal.what();
  } catch (const std::bad_alloc&) {
    reply = refused(model::serve::Refusal(503, "out of memory"), ask.path);
  } catch (const Error& error) {
    reply = refused(model::serve::Refusal(500, error.what()), ask.path);
    line.ended = error.what();
  } catch (const std::exception& error) {
    reply = refused(model::serve::Refusal(500, "an internal error; see the server's log"), ask.path);
    line.ended = error.what();
  }
  for (auto& header : origins_.headers(ask)) reply.headers.push_back(std::move(header));
  if (!is_logged) log(ask, reply.status, watch.seconds(), line);
  return reply;
}

// Checks the key and the origin of a request, and whether its path has the method.
HttpReply Routes::answer_checked(const HttpAsk& ask, Line* line, bool* is_logged) {
  if (const std::string reason = origins_.refusal(ask); !reason.empty()) throw model::serve::Refusal(403, reason);
  const FoundPath path = find_path(ask.path);
  if (path.served && origins_.is_preflight(ask)) return origins_.preflight(ask);
  if (!(path.served && path.served->is_open) && !is_known(ask.authorization))
    throw model::serve::Refusal(401, "a key is needed: Authorization: Bearer KEY", {}, "invalid_api_key");
  if (!path.served) throw model::serve::Refusal(404, "no such path");
  if (!path.served->takes(ask.method)) {
    HttpReply reply =
        refused(model::serve::Refusal(405, std::string("this path takes ") + path.served->methods), ask.path);
    reply.headers.emplace_back("Allow", path.served->methods);
    return reply;
  }
  return route(ask, path, line, is_logged);
}

HttpReply Routes::route(const HttpAsk& ask, const FoundPath& path, Line* line, bool* is_logged) {
  if (ask.method != "POST") return get(ask, path);
  if (is_draining_) throw model::serve::Refusal(503, "the server is shutting down");
  check_rate(ask);
  switch (path.served->action) {
    case Action::chat:
    case Action::completion:
    case Action::responses:
    case Action::messages:
    case Action::native_completion:
    case Action::infill:
    case Action::ollama_chat:
    case Action::ollama_generate:
      return generate(ask, path.served->action, line, is_logged);
    default:
      return post(ask, path, line);
  }
}

// Parses a request of one of the APIs and submits it to the scheduler; null if there is nothing to generate.
std::shared_ptr<Routes::Running> Routes::begin(const HttpAsk& ask, Action action, Line* line, bool* is_stream) {
  const Stopwatch watch;
  const ordered_json body = model::serve::request_object(ask.body);
  const Entry& entry = entry_of(body);
  const model::serve::ServedModel& model = *entry.model;
  line->model = model.name;
  model::serve::GenerationRequest request;
  std::unique_ptr<model::serve::Reply> reply;
  model::serve::FieldNotes notes{model.is_strict, {}};
  if (action == Action::responses) {
    model::serve::ResponsesAsk responses = model::serve::read_responses(body, responses_, &notes);
    request = model::serve::read_chat(responses.chat, model, &notes, ask.is_gone);
    reply = std::make_unique<model::serve::ResponsesReply>(request, model, now_seconds(), std::move(responses),
                                                           &responses_);
  } else if (action == Action::messages) {
    request = model::serve::read_chat(model::serve::chat_of_messages(body, false, &notes), model, &notes, ask.is_gone);
    reply = std::make_unique<model::serve::MessagesReply>(request, model, now_seconds());
  } else if (action == Action::native_completion || action == Action::infill) {
    model::serve::NativeAsk native = action == Action::infill ? model::serve::read_infill(body, model)
                                                              : model::serve::read_native_completion(body, model);
    request = model::serve::read_completion(native.body, model, ask.is_gone);
    reply = std::make_unique<model::serve::NativeReply>(request, model, now_seconds(), std::move(native));
  } else if (action == Action::ollama_chat || action == Action::ollama_generate) {
    model::serve::OllamaAsk ollama = action == Action::ollama_chat ? model::serve::read_ollama_chat(body)
                                                                   : model::serve::read_ollama_generate(body, model);
    if (ollama.is_load) return nullptr;
    request = ollama.is_chat ? model::serve::read_chat(ollama.body, model, nullptr, ask.is_gone)
                             : model::serve::read_completion(ollama.body, model, ask.is_gone);
    reply = std::make_unique<model::serve::OllamaReply>(request, model, now_seconds(), std::move(ollama));
  } else {
    request = action == Action::chat ? model::serve::read_chat(body, model, nullptr, ask.is_gone)
                                     : model::serve::read_completion(body, model, ask.is_gone);
    reply = std::make_unique<model::serve::Reply>(request, model, now_seconds());
  }
  *is_stream = request.stream;
  auto running = std::make_shared<Running>(Running{std::move(reply), nullptr, watch});
  running->tell(line);
  request.set = model.set;
  running->answering = entry.scheduler->submit(std::move(request));
  return running;
}

HttpReply Routes::generate(const HttpAsk& ask, Action action, Line* line, bool* is_logged) {
  bool is_stream = false;
  const std::shared_ptr<Running> running = begin(ask, action, line, &is_stream);
  if (!running) return loaded(ask, action, *entry_of(model::serve::request_object(ask.body)).model);
  if (!is_stream) return whole(ask, *running, line);
  *is_logged = true;
  HttpReply out;
  out.type = running->reply->stream_type();
  out.headers.emplace_back("Cache-Control", "no-store");
  HttpAsk about = ask;
  about.body.clear();
  out.stream = [this, about, running, told = *line](const HttpReply::Write& write) {
    Line at_end = told;
    int status = 200;
    const bool is_whole = stream(about, *running, &at_end, &status, write);
    log(about, status, running->watch.seconds(), at_end);
    return is_whole;
  };
  return out;
}

HttpReply Routes::whole(const HttpAsk& ask, Running& running, Line* line) {
  while (!running.reply->has_ended())
    if (auto delta = running.next(ask, line)) running.reply->add(std::move(*delta));
  running.tell(line);
  return json_reply(running.reply->whole());
}

bool Routes::stream(const HttpAsk& ask, Running& running, Line* line, int* status, const HttpReply::Write& write) {
  try {
    std::string first = running.reply->first_events();
    bool reads = first.empty() || write(first);
    while (!running.reply->has_ended()) {
      auto delta = running.next(ask, line);
      if (delta) reads = reads && write(running.reply->events(std::move(*delta)));
      if (reads) continue;
      running.answering->cancel(model::serve::CancelReason::too_slow);
      throw model::serve::Refusal(kClientLeft, "the client does not read");
    }
    running.tell(line);
    return write(running.reply->last_events());
  } catch (const model::serve::Refusal& refusal) {
    running.tell(line);
    line->ended = refusal.what();
    *status = refusal.status;
    return refusal.status != kClientLeft && write(running.reply->failed_events(refusal));
  }
}

void Routes::log(const HttpAsk& ask, int status, double seconds, const Line& line) {
  const FoundPath path = find_path(ask.path);
  counts_.add(path.served ? path.served->path : "other", status);
  if (!log_json_ && verbosity() == Verbosity::quiet) return;
  std::string text;
  if (log_json_) {
    ordered_json out;
    out["time"] = now_seconds();
    out["remote"] = ask.remote;
    out["method"] = ask.method;
    out["path"] = ask.path;
    out["status"] = status;
    out["seconds"] = seconds;
    if (!line.model.empty()) out["model"] = line.model;
    if (!line.id.empty()) out["id"] = line.id;
    if (line.prompt > 0) {
      out["prompt_tokens"] = line.prompt;
      out["cached_tokens"] = line.cached;
      if (line.from_disk > 0) out["disk_tokens"] = line.from_disk;
      out["completion_tokens"] = line.made;
    }
    if (line.first >= 0) out["first_seconds"] = line.first;
    if (!line.ended.empty()) out["ended"] = line.ended;
    text = model::serve::json_line(out) + "\n";
  } else {
    text = fmt::format("{} {} {} {}", ask.remote, printable(ask.method), printable(ask.path), status);
    if (!line.model.empty()) text += " | " + printable(line.model);
    if (line.prompt > 0)
      text += fmt::format(" | read {} tokens, {} of them cached{}, wrote {}", line.prompt, line.cached,
                          line.from_disk > 0 ? fmt::format(" ({} on disk)", line.from_disk) : "", line.made);
    if (!line.ended.empty()) text += " | " + printable(line.ended);
    text += fmt::format(" | {:.3f} s\n", seconds);
  }
  const std::lock_guard lock(log_mutex_);
  std::fputs(text.c_str(), stderr);
}

}  // namespace lumen::cli
