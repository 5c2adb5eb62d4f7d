#include "cli/hub/client.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "base/structured/json.h"
#include "cli/command.h"
#include "cli/version.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;
using model::file::HubName;

constexpr const char* kEndpoint = "https://huggingface.co";
constexpr int kMostRedirects = 5;
constexpr uint64_t kMostJson = uint64_t{32} << 20;   // bytes of a list of files
constexpr uint64_t kMostWords = uint64_t{1} << 16;   // of an error, in bytes
constexpr size_t kMostFiles = 100'000;               // of a repository
constexpr uint64_t kMostBytes = uint64_t{1} << 44;   // of one file
constexpr double kMostSecondsOfList = 120;           // for a small answer
constexpr double kFirstWait = 1, kLongestWait = 60;  // seconds between attempts
constexpr size_t kMostToken = 4096;
constexpr size_t kShownMessage = 200;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_true(const char* name) {
  const std::string value = model::file::in_lower_case(variable(name));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

fs::path token_file() {
  if (const std::string file = variable("HF_TOKEN_PATH"); !file.empty()) return file;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "token";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface" / "token";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "huggingface" / "token";
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Empty where there is none. Error when it is no token: it becomes a header.
std::string find_token() {
  std::string source = "HF_TOKEN", token = trimmed(variable("HF_TOKEN"));
  if (token.empty()) source = "HUGGING_FACE_HUB_TOKEN", token = trimmed(variable("HUGGING_FACE_HUB_TOKEN"));
  std::error_code failure;
  if (const fs::path file = token_file();
      token.empty() && !is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") && fs::is_regular_file(file, failure))
    source = file.string(), token = trimmed(read_file(file, kMostToken));
  if (!std::ranges::all_of(token, [](unsigned char c) { return c > 0x20 && c < 0x7f; }) || token.size() > kMostToken)
    throw Error(Exit::user, fmt::format("{} holds no token: it has blanks or other characters", source),
                "a token of the hub is one word that begins with hf_");
  return token;
}

Url find_endpoint() {
  const std::string given = variable("HF_ENDPOINT");
  const std::optional<Url> url = parse_url(given.empty() ? kEndpoint : given);
  if (!url || url->path.find('?') != std::string::npos)
    throw Error(Exit::user, fmt::format("HF_ENDPOINT '{}' is no http or https address", given),
                "unset it, or give the address of a mirror, as in https://hf-mirror.com");
  return *url;
}

// The hub's own words about an error.
std::string message_of(const FetchReply& reply) {
  const std::string message = reply.header("x-error-message");
  return message.empty() ? "" : ": " + printable(message.substr(0, kShownMessage));
}

bool is_redirect(const FetchReply& reply) {
  const int status = reply.status;
  return reply.failure == FetchFailure::none &&
         (status == 301 || status == 302 || status == 303 || status == 307 || status == 308);
}

bool is_success(const FetchReply& reply) {
  return reply.failure == FetchFailure::none && reply.status >= 200 && reply.status < 300;
}

FetchReply refusal(std::string reason) {
  FetchReply out;
  out.failure = FetchFailure::refused;
  out.reason = std::move(reason);
  return out;
}

// The next address of a redirect; empty, with the reason in `refused`, where it is not followed.
std::optional<Url> next_address(const Url& at, const FetchReply& reply, int count, FetchReply* refused) {
  std::optional<Url> next = redirected(at, reply.header("location"));
  if (!next)
    *refused = refusal("it redirects to no http or https address");
  else if (at.is_secure && !next->is_secure)
    *refused = refusal("it redirects from https to http");
  else if (count >= kMostRedirects)
    *refused = refusal(fmt::format("it redirects more than {} times", kMostRedirects));
  else
    return next;
  return std::nullopt;
}

// The name of contents, without the marks of an ETag header; empty where it cannot be the name of a blob.
std::string plain_etag(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  std::erase(text, '"');
  return model::file::is_plain_name(text) ? text : "";
}

std::optional<uint64_t> byte_count(const std::string& text) {
  uint64_t out = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || failure != std::errc() || stop != text.data() + text.size() || out > kMostBytes)
    return std::nullopt;
  return out;
}

Error malformed(const std::string& what, const std::string& why) {
  return Error(Exit::user, fmt::format("the hub's answer about {} is refused: {}", what, why),
               "check HF_ENDPOINT, proxies, and whether a login page of the network answers");
}

const std::function<bool()> is_stopped = [] { return interrupted().load(); };

}  // namespace

bool is_offline_by_environment() {
  return is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
}

HubClient::HubClient(HubOptions options) : options_(options), endpoint_(find_endpoint()), token_(find_token()) {
  prefix_ = endpoint_.path;
  while (prefix_.ends_with('/')) prefix_.pop_back();
  if (!token_.empty() && !endpoint_.is_secure && !endpoint_.is_loopback()) {
    warn(fmt::format("the token is not sent to {}, which has no TLS", endpoint_.origin()));
    token_.clear();
  }
}

std::vector<std::pair<std::string, std::string>> HubClient::headers_for(const Url& url) const {
  std::vector<std::pair<std::string, std::string>> out = {{"User-Agent", fmt::format("lumen/{}", kVersion)},
                                                          {"Accept-Encoding", "identity"}};
  if (!token_.empty() && url.origin() == endpoint_.origin()) out.emplace_back("Authorization", "Bearer " + token_);
  return out;
}

bool HubClient::may_pass(const FetchReply& reply) {
  if (reply.failure == FetchFailure::broken) return true;
  if (reply.failure != FetchFailure::none) return false;
  return reply.status == 408 || reply.status == 429 || reply.status >= 500;
}

void HubClient::wait(const FetchReply& reply, int attempt, const std::string& what) const {
  double seconds = std::min(kFirstWait * double(1 << std::min(attempt - 1, 10)), kLongestWait);
  if (const auto asked = byte_count(reply.header("retry-after")))
    seconds = std::min(std::max(double(*asked), kFirstWait), kLongestWait);
  const std::string reason =
      reply.failure == FetchFailure::none ? fmt::format("status {}", reply.status) : reply.reason;
  note(fmt::format("{}: {}; attempt {} of {} in {:.0f} s", what, reason, attempt + 1, options_.retries + 1, seconds));
  const Stopwatch watch;
  while (watch.seconds() < seconds) {
    if (is_stopped()) throw Interrupted{};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

FetchReply HubClient::ask(const Url& first, bool head_only, std::string* body, Url* last,
                          const std::function<bool(const FetchReply&)>& is_final) {
  *last = first;
  for (int count = 0;; ++count) {
    FetchRequest request;
    request.url = last->text();
    request.head_only = head_only;
    request.headers = headers_for(*last);
    request.most = kMostJson;
    request.connect_seconds = request.idle_seconds = options_.seconds;
    request.whole_seconds = kMostSecondsOfList;
    body->clear();
    const auto take = [&](const FetchReply&, std::string_view piece) {
      *body += piece;
      return true;
    };
    FetchReply reply = fetcher_.ask(request, take, is_stopped);
    if (reply.failure == FetchFailure::interrupted) throw Interrupted{};
    if (!is_redirect(reply) || is_final(reply)) return reply;
    FetchReply refused;
    const std::optional<Url> next = next_address(*last, reply, count, &refused);
    if (!next) return refused;
    *last = *next;
  }
}

FetchReply HubClient::ask_again(const std::string& path, bool head_only, std::string* body, Url* last,
                                const std::string& what, const std::function<bool(const FetchReply&)>& is_final) {
  Url url = endpoint_;
  url.path = prefix_ + path;
  for (int attempt = 1;; ++attempt) {
    FetchReply reply = ask(url, head_only, body, last, is_final);
    if (!may_pass(reply) || attempt > options_.retries) return reply;
    wait(reply, attempt, what);
  }
}

RemoteRepository HubClient::list(const HubName& name) {
  const std::string what = fmt::format("the files of {}", name.repository());
  std::string body;
  Url last;
  const std::string path = fmt::format("/api/models/{}/revision/{}", name.repository(), url_encoded(name.revision));
  const FetchReply reply = ask_again(path, false, &body, &last, what, [](const FetchReply&) { return false; });
  if (!is_success(reply)) throw failed(reply, name, what);
  RemoteRepository out;
  try {
    const nlohmann::json answer = parse_json(body, "");
    if (!answer.is_object()) throw user_error("it is no object");
    out.commit = json_text(answer, "sha", "the answer");
    const nlohmann::json& files = json_member(answer, "siblings", "the answer");
    if (!files.is_array() || files.size() > kMostFiles)
      throw user_error("it has no list of at most {} files", kMostFiles);
    for (const nlohmann::json& file : files) {
      std::string path_of_file = json_text(file, "rfilename", "a file");
      if (!model::file::is_repository_path(path_of_file))
        throw user_error("it names a file '{}'", printable(path_of_file.substr(0, kShownMessage)));
      out.files.push_back(std::move(path_of_file));
    }
  } catch (const Error& wrong) {
    throw malformed(what, wrong.what());
  }
  if (!model::file::is_commit(out.commit)) throw malformed(what, "it names no commit");
  return out;
}

RemoteFile HubClient::locate(const HubName& name, const std::string& commit, const std::string& path) {
  std::string body;
  Url last;
  // The first answer with the commit is the hub's own; where it redirects, the contents are.
  const auto is_of_hub = [](const FetchReply& reply) {
    return !reply.header("x-repo-commit").empty() && !reply.header("x-linked-etag").empty();
  };
  const FetchReply reply =
      ask_again(fmt::format("/{}/resolve/{}/{}", name.repository(), commit, url_encoded(path, "/")), true, &body, &last,
                path, is_of_hub);
  if (!is_success(reply) && !is_redirect(reply)) throw failed(reply, name, path);
  RemoteFile out;
  out.path = path;
  out.commit = reply.header("x-repo-commit");
  const std::string linked = reply.header("x-linked-etag"), size = reply.header("x-linked-size");
  out.etag = plain_etag(linked.empty() ? reply.header("etag") : linked);
  const std::optional<uint64_t> bytes = byte_count(size.empty() ? reply.header("content-length") : size);
  if (out.commit != commit) throw malformed(path, "it is about another commit");
  if (out.etag.empty()) throw malformed(path, "it has no ETag that can name a file of the cache");
  if (!bytes) throw malformed(path, "it has no size");
  out.size = *bytes;
  out.location = last;
  if (is_redirect(reply)) {
    FetchReply refused;
    const std::optional<Url> next = next_address(last, reply, 0, &refused);
    if (!next) throw malformed(path, refused.reason);
    out.location = *next;
  }
  return out;
}

FetchReply HubClient::read(const RemoteFile& file, uint64_t begin, const Fetcher::Take& take) {
  Url url = file.location;
  for (int count = 0;; ++count) {
    FetchRequest request;
    request.url = url.text();
    request.headers = headers_for(url);
    request.most = file.size + kMostWords;  // `take` refuses what is longer than the file
    request.connect_seconds = request.idle_seconds = options_.seconds;
    if (begin > 0) {
      request.headers.emplace_back("Range", fmt::format("bytes={}-", begin));
      // Other hosts have ETags of their own; their addresses name one version of the contents.
      if (url.origin() == endpoint_.origin())
        request.headers.emplace_back("If-Range", fmt::format("\"{}\"", file.etag));
    }
    const auto take_contents = [&](const FetchReply& head, std::string_view piece) {
      return head.status == 200 || head.status == 206 ? take(head, piece) : true;
    };
    FetchReply reply = fetcher_.ask(request, take_contents, is_stopped);
    if (reply.failure == FetchFailure::interrupted) throw Interrupted{};
    if (!is_redirect(reply)) return reply;
    FetchReply refused;
    const std::optional<Url> next = next_address(url, reply, count, &refused);
    if (!next) return refused;
    url = *next;
  }
}

Error HubClient::failed(const FetchReply& reply, const HubName& name, const std::string& what) const {
  const std::string repository = name.repository(), hub = endpoint_.origin();
  const std::string cached = "--offline uses what is in the cache; `lumen list` shows it";
  switch (reply.failure) {
    case FetchFailure::unreachable:
      return Error(Exit::user, fmt::format("the hub {} cannot be reached: {}", hub, reply.reason),
                   "check the network, proxies (https_proxy) and HF_ENDPOINT; " + cached);
    case FetchFailure::untrusted:
      return Error(Exit::user, fmt::format("the hub {} is not trusted: {}", hub, reply.reason),
                   "check the clock and the certificates of the system; SSL_CERT_FILE names those of an authority of "
                   "your own");
    case FetchFailure::broken:
      return Error(Exit::user,
                   fmt::format("{}: the connection ended {} times: {}", what, options_.retries + 1, reply.reason),
                   "run the command again: it continues where it has stopped");
    case FetchFailure::refused:
    case FetchFailure::interrupted:
      return malformed(what, reply.reason);
    case FetchFailure::none:
      break;
  }
  const std::string code = reply.header("x-error-code"), words = message_of(reply);
  const std::string get_token =
      token_.empty() ? fmt::format("if it is private, set HF_TOKEN to a token from {}/settings/tokens", hub)
                     : "check the name, and whether the token in use may read it";
  if (code == "GatedRepo")
    return Error(Exit::user, fmt::format("'{}' may be used only after its terms are accepted{}", repository, words),
                 fmt::format("accept them at {}/{}, and set HF_TOKEN to a token of that account", hub, repository));
  if (code == "RevisionNotFound")
    return Error(Exit::user, fmt::format("'{}' has no revision '{}'", repository, name.revision),
                 "a branch, a tag or a commit follows the @");
  if (code == "EntryNotFound") return Error(Exit::user, fmt::format("'{}' has no file {}", repository, what));
  if (reply.status == 401 && !token_.empty() && code != "RepoNotFound")
    return Error(Exit::user, fmt::format("the hub refuses the token (status 401){}", words),
                 "check HF_TOKEN, or the token that `hf auth login` has stored");
  if (reply.status == 401 || reply.status == 404 || code == "RepoNotFound")
    return Error(Exit::user, fmt::format("the hub has no public repository '{}' (status {})", repository, reply.status),
                 "check the name; " + get_token);
  if (reply.status == 403)
    return Error(Exit::user, fmt::format("the hub forbids access to '{}' (status 403){}", repository, words),
                 get_token);
  if (reply.status == 429)
    return Error(Exit::user, fmt::format("the hub gets too many requests from here (status 429){}", words),
                 token_.empty() ? "wait, or set HF_TOKEN: accounts have a higher limit" : "wait a few minutes");
  if (reply.status >= 500)
    return Error(Exit::user, fmt::format("the hub {} fails (status {}){}", hub, reply.status, words), "try later");
  return malformed(what, fmt::format("status {}{}", reply.status, words));
}

}  // namespace lumen::cli
