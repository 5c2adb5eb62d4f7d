// The Hugging Face hub over HTTP: the files of a repository, and where their contents are. The address is HF_ENDPOINT
// or https://huggingface.co. The token is HF_TOKEN, or the file in HF_TOKEN_PATH, $HF_HOME/token or
// ~/.cache/huggingface/token; only the hub's own origin gets it. Answers are checked before they are used. Proved by
// tests/cli/hub/hub_check.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/fetch/fetch.h"
#include "base/fetch/url.h"
#include "model/file/hub/hub.h"

namespace lumen::cli {

struct HubOptions {
  int retries = 5;      // after a failure that may pass
  double seconds = 30;  // the longest wait for a connection, and for a byte
  bool is_offline = false;
};

// Whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.
bool is_offline_by_environment();

struct RemoteRepository {
  std::string commit;
  model::file::FileNames files;
};

// The contents of a file at a commit.
struct RemoteFile {
  std::string path, etag, commit;
  uint64_t size = 0;
  Url location;
};

// Thrown when the user stops a download.
struct Interrupted {};

class HubClient {
 public:
  explicit HubClient(HubOptions options);

  RemoteRepository list(const model::file::HubName& name);
  RemoteFile locate(const model::file::HubName& name, const std::string& commit, const std::string& path);
  // Requests the contents from byte `begin` on, once, following redirects; `take` gets each piece of an answer with
  // status 200 or 206. Returns the last answer.
  FetchReply read(const RemoteFile& file, uint64_t begin, const Fetcher::Take& take);

  const HubOptions& options() const { return options_; }
  // Whether a failure may pass.
  static bool may_pass(const FetchReply& reply);
  // Waits before attempt number 1, 2, .. of a repetition, longer each time, or as long as the answer says.
  void wait(const FetchReply& reply, int attempt, const std::string& what) const;
  // The error for an answer that is no success. `what`: "the list of files".
  Error failed(const FetchReply& reply, const model::file::HubName& name, const std::string& what) const;

 private:
  FetchReply ask(const Url& first, bool head_only, std::string* body, Url* last,
                 const std::function<bool(const FetchReply&)>& is_final);
  FetchReply ask_again(const std::string& path, bool head_only, std::string* body, Url* last, const std::string& what,
                       const std::function<bool(const FetchReply&)>& is_final);
  std::vector<std::pair<std::string, std::string>> headers_for(const Url& url) const;

  HubOptions options_;
  Url endpoint_;
  std::string prefix_;  // the path of the endpoint, without a slash at its end
  std::string token_;
  Fetcher fetcher_;
};

}  // namespace lumen::cli
