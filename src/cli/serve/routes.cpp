#include "cli/serve/routes.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "cli/serve/page.h"

namespace lumen::cli {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr double kLook = 0.1;     // seconds between checks for a disconnected client
constexpr int kClientLeft = 499;  // only for the log, as nginx has it; never sent
constexpr const char *kChats = "/v1/chat/completions", *kCompletions = "/v1/completions", *kResponses = "/v1/responses",
                     *kMessages = "/v1/messages", *kCount = "/v1/messages/count_tokens",
                     *kEmbeddings = "/v1/embeddings";
constexpr const char* kPostPaths[] = {kChats, kCompletions, kResponses,  kMessages,
                                      kCount, kEmbeddings,  "/tokenize", "/detokenize"};
constexpr const char* kTextPaths[] = {kChats, kCompletions, kResponses, kMessages};
constexpr const char* kGetPaths[] = {"/", "/v1/models", "/health", "/metrics", "/tokenizer_info"};
constexpr const char* kOneModel = "/v1/models/";

template <typename Paths>
bool is_among(const Paths& paths, const std::string& path) {
  return std::find(std::begin(paths), std::end(paths), path) != std::end(paths);
}

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

HttpReply json_reply(const ordered_json& value) {
  HttpReply out;
  out.body = model::json_line(value);
  return out;
}

// An error in the form of the API that the path belongs to.
HttpReply refused(const model::Refusal& refusal, const std::string& path) {
  HttpReply out;
  out.status = refusal.status;
  out.body = path.starts_with(kMessages) ? model::messages_error(refusal) : refusal.body();
  if (refusal.status == 429 || refusal.status == 503) out.headers.emplace_back("Retry-After", "1");
  if (refusal.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

// The process's memory under the metric name of Prometheus' client libraries.
std::string memory_metric() {
  std::ifstream in("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  if (!(in >> whole >> resident)) return {};
  return fmt::format(
      "# HELP process_resident_memory_bytes Memory of this process.\n# TYPE process_resident_memory_bytes gauge\n"
      "process_resident_memory_bytes {}\n",
      resident * ::sysconf(_SC_PAGESIZE));
}

std::array<unsigned char, 32> digest_of(const std::string& text) {
  std::array<unsigned char, 32> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

}  // namespace

// A running GenerationRequest.
struct Routes::Running {
  std::unique_ptr<model::Reply> reply;
  std::shared_ptr<model::Answering> answering;
  Stopwatch watch;

  // The next piece; nullopt when there is none yet. Refusal when the client has disconnected.
  std::optional<model::Delta> next(const HttpAsk& ask, Line* line) {
    std::optional<model::Delta> delta = answering->next(kLook);
    if (delta && line->first < 0) line->first = watch.seconds();
    if (ask.is_gone()) {
      answering->cancel(model::CancelReason::client_left);
      throw model::Refusal(kClientLeft, "the client has left");
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
      started_(now_seconds()),
      prefixes_(options.prefixes),
      rates_(options.client_rate) {
  for (const std::string& key : options.keys) keys_.push_back(digest_of(key));
}

std::string Routes::refusal(int status, const std::string& message) {
  counts_.add("other", status);
  return model::Refusal(status, message).body();
}

// Takes the same time for every wrong key, so that timing reveals nothing.
bool Routes::is_known(const std::string& authorization) const {
  if (keys_.empty()) return true;
  const std::string bearer = "Bearer ";
  const Digest given = digest_of(authorization.starts_with(bearer) ? authorization.substr(bearer.size()) : "");
  bool known = false;
  for (const Digest& key : keys_) known |= CRYPTO_memcmp(key.data(), given.data(), key.size()) == 0;
  return known && authorization.starts_with(bearer);
}

const Routes::Entry& Routes::entry_of(const ordered_json& body) const {
  const std::string name = model::request_model(body);
  if (name.empty() && entries_.size() == 1) return entries_[0];
  for (const Entry& entry : entries_)
    if (entry.model->name == name) return entry;
  throw model::Refusal(404, name.empty() ? "which 'model'? /v1/models lists them" : "no such model: " + name, "model",
                       "model_not_found");
}

// Limits by API key where keys are in use, so that clients that share an address have separate budgets.
void Routes::check_rate(const HttpAsk& ask) {
  const std::string client = keys_.empty() ? ask.remote : ask.authorization;
  const double wait = rates_.ask(client, std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
  if (wait > 0)
    throw model::Refusal(429, fmt::format("too many requests of this client; ask again in {:.1f} s", wait), {},
                         "rate_limit_exceeded");
}

HttpReply Routes::answer(const HttpAsk& ask) {
  const Stopwatch watch;
  Line line;
  bool is_logged = false;  // a stream is logged by its writer, when it ends
  HttpReply reply;
  try {
    reply = route(ask, &line, &is_logged);
  } catch (const model::Refusal& refusal) {
    reply = refused(refusal, ask.path);
    line.ended = refusal.what();
  } catch (const std::bad_alloc&) {
    reply = refused(model::Refusal(503, "out of memory"), ask.path);
  } catch (const Error& error) {
    reply = refused(model::Refusal(500, error.what()), ask.path);
    line.ended = error.what();
  } catch (const std::exception& error) {
    reply = refused(model::Refusal(500, "an internal error; see the server's log"), ask.path);
    line.ended = error.what();
  }
  if (!is_logged) log(ask, reply.status, watch.seconds(), line);
  return reply;
}

HttpReply Routes::route(const HttpAsk& ask, Line* line, bool* is_logged) {
  if (ask.path != "/health" && ask.path != "/" && !is_known(ask.authorization))
    throw model::Refusal(401, "a key is needed: Authorization: Bearer KEY", {}, "invalid_api_key");
  const bool is_get = is_among(kGetPaths, ask.path) || ask.path.starts_with(kOneModel);
  const bool is_post = is_among(kPostPaths, ask.path);
  if (!is_get && !is_post) throw model::Refusal(404, "no such path");
  if (is_get ? ask.method != "GET" && ask.method != "HEAD" : ask.method != "POST") {
    HttpReply reply =
        refused(model::Refusal(405, is_get ? "this path is asked with GET" : "this path is asked with POST"), ask.path);
    reply.headers.emplace_back("Allow", is_get ? "GET, HEAD" : "POST");
    return reply;
  }
  if (is_get) return get(ask);
  if (is_draining_) throw model::Refusal(503, "the server is shutting down");
  check_rate(ask);
  if (is_among(kTextPaths, ask.path)) return generate(ask, line, is_logged);
  if (ask.path == kCount) return count_tokens(ask, line);
  return ask.path == kEmbeddings ? embed(ask, line) : other_post(ask, line);
}

// Parses a request of one of the APIs and submits it to the scheduler.
std::shared_ptr<Routes::Running> Routes::begin(const HttpAsk& ask, Line* line, bool* is_stream) {
  const Stopwatch watch;
  const ordered_json body = model::request_object(ask.body);
  const Entry& entry = entry_of(body);
  const model::ServedModel& model = *entry.model;
  line->model = model.name;
  model::GenerationRequest request;
  std::unique_ptr<model::Reply> reply;
  if (ask.path == kResponses) {
    model::ResponsesAsk responses = model::read_responses(body, responses_);
    request = model::read_chat(responses.chat, model, ask.is_gone);
    reply = std::make_unique<model::ResponsesReply>(request, model, now_seconds(), std::move(responses), &responses_);
  } else if (ask.path == kMessages) {
    request = model::read_chat(model::chat_of_messages(body, false), model, ask.is_gone);
    reply = std::make_unique<model::MessagesReply>(request, model, now_seconds());
  } else {
    request = ask.path == kChats ? model::read_chat(body, model, ask.is_gone)
                                 : model::read_completion(body, model, ask.is_gone);
    reply = std::make_unique<model::Reply>(request, model, now_seconds());
  }
  *is_stream = request.stream;
  auto running = std::make_shared<Running>(Running{std::move(reply), nullptr, watch});
  running->tell(line);
  request.set = model.set;
  running->answering = entry.scheduler->submit(std::move(request));
  return running;
}

HttpReply Routes::count_tokens(const HttpAsk& ask, Line* line) {
  const ordered_json body = model::request_object(ask.body);
  const model::ServedModel& model = *entry_of(body).model;
  line->model = model.name;
  const model::GenerationRequest request = model::read_chat(model::chat_of_messages(body, true), model, ask.is_gone);
  return json_reply({{"input_tokens", request.prompts.at(0).size()}});
}

HttpReply Routes::generate(const HttpAsk& ask, Line* line, bool* is_logged) {
  bool is_stream = false;
  const std::shared_ptr<Running> running = begin(ask, line, &is_stream);
  if (!is_stream) return whole(ask, *running, line);
  *is_logged = true;
  HttpReply out;
  out.type = "text/event-stream";
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
      running.answering->cancel(model::CancelReason::too_slow);
      throw model::Refusal(kClientLeft, "the client does not read");
    }
    running.tell(line);
    return write(running.reply->last_events());
  } catch (const model::Refusal& refusal) {
    running.tell(line);
    line->ended = refusal.what();
    *status = refusal.status;
    return refusal.status != kClientLeft && write(running.reply->failed_events(refusal));
  }
}

HttpReply Routes::embed(const HttpAsk& ask, Line* line) {
  const ordered_json body = model::request_object(ask.body);
  const Entry& entry = entry_of(body);
  line->model = entry.model->name;
  model::EmbeddingRequest request = model::read_embedding(body, *entry.model);
  request.set = entry.model->set;
  for (const auto& input : request.inputs) line->prompt += std::ssize(input);
  const auto embedding = entry.scheduler->submit(request);
  for (;;) {
    if (const auto vectors = embedding->take(kLook))
      return json_reply(model::embedding_reply(request, *entry.model, *vectors));
    if (!ask.is_gone()) continue;
    embedding->cancel();
    throw model::Refusal(kClientLeft, "the client has left");
  }
}

HttpReply Routes::other_post(const HttpAsk& ask, Line* line) {
  const ordered_json body = model::request_object(ask.body);
  const model::ServedModel& model = *entry_of(body).model;
  line->model = model.name;
  if (ask.path == "/tokenize") return json_reply(model::tokenize_reply(model::read_tokenize(body, model), model));
  return json_reply(model::detokenize_reply(model::read_detokenize(body, model), model));
}

HttpReply Routes::get(const HttpAsk& ask) const {
  if (ask.path == "/") return page_reply();
  if (ask.path == "/health") {
    HttpReply reply = json_reply({{"status", is_draining_ ? "draining" : "ok"}});
    if (is_draining_) reply.status = 503;
    return reply;
  }
  if (ask.path == "/metrics") {
    std::map<std::string, model::ServeNumbers> by_model;
    for (const Entry& entry : entries_) by_model[entry.model->name] = entry.scheduler->numbers(entry.model->set);
    HttpReply reply;
    reply.type = "text/plain; version=0.0.4; charset=utf-8";
    reply.body = model::metrics_text(by_model, counts_) + memory_metric();
    if (prefixes_) reply.body += model::prefix_metrics(prefixes_->numbers());
    return reply;
  }
  if (ask.path == "/tokenizer_info") return json_reply(model::tokenizer_reply(*entry_of(ordered_json::object()).model));
  std::vector<const model::ServedModel*> models;
  for (const Entry& entry : entries_) models.push_back(entry.model);
  if (ask.path == "/v1/models") return json_reply(model::models_reply(models, started_));
  for (const model::ServedModel* one : models)
    if (ask.path == kOneModel + one->name) return json_reply(model::model_reply(*one, started_));
  throw model::Refusal(404, "no such model", "model", "model_not_found");
}

void Routes::log(const HttpAsk& ask, int status, double seconds, const Line& line) {
  const bool is_known_path = is_among(kGetPaths, ask.path) || is_among(kPostPaths, ask.path);
  counts_.add(is_known_path ? ask.path : "other", status);
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
    text = model::json_line(out) + "\n";
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
