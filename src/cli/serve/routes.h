// The routes of the server: requests to models, and their responses. This code does not depend on sockets. Proved by
// tests/cli/serve/serve_check.py.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cli/serve/clients.h"
#include "cli/serve/http.h"
#include "cli/serve/origins.h"
#include "cli/serve/paths.h"
#include "model/serve/forms/forms.h"
#include "model/serve/serve.h"

namespace lumen::cli {

struct RouteOptions {
  std::vector<std::string> keys;  // valid API keys; empty: none is required
  bool log_json = false;
  std::shared_ptr<model::infer::PrefixFiles> prefixes = nullptr;  // where the models store their cached prefixes
  double client_rate = 0;                                         // requests per second of one client; 0: no limit
  OriginRules origins = {};                                       // hosts and pages that may send requests
  int64_t slots = 1;                                              // sequences that a model generates at once
  bool strict = false;  // a request must name a served model, even if there is only one
};

inline constexpr double kLook = 0.1;     // seconds between checks for a disconnected client
inline constexpr int kClientLeft = 499;  // only for the log, as nginx has it; never sent

int64_t now_seconds();  // since 1970
HttpReply json_reply(const nlohmann::ordered_json& value);

class Routes {
 public:
  // A model and its scheduler; both must outlive this object.
  struct Entry {
    const model::serve::ServedModel* model;
    model::serve::Scheduler* scheduler;
  };
  Routes(std::vector<Entry> entries, const RouteOptions& options);

  HttpReply answer(const HttpAsk& ask);
  std::string refusal(int status, const std::string& message);
  void drain() { is_draining_ = true; }

 private:
  // The content of one line of the log.
  struct Line {
    std::string id, model, ended;
    int64_t prompt = 0, cached = 0, from_disk = 0, made = 0;
    double first = -1;  // seconds to the first piece
  };
  struct Running;

  bool is_known(const std::string& authorization) const;
  void check_rate(const HttpAsk& ask);
  const Entry& entry_of(const nlohmann::ordered_json& body) const;
  const Entry* find_entry(const std::string& name) const;
  HttpReply answer_checked(const HttpAsk& ask, Line* line, bool* is_logged);
  HttpReply route(const HttpAsk& ask, const FoundPath& path, Line* line, bool* is_logged);
  HttpReply generate(const HttpAsk& ask, Action action, Line* line, bool* is_logged);
  std::shared_ptr<Running> begin(const HttpAsk& ask, Action action, Line* line, bool* is_stream);
  HttpReply whole(const HttpAsk& ask, Running& running, Line* line);
  bool stream(const HttpAsk& ask, Running& running, Line* line, int* status, const HttpReply::Write& write);
  std::vector<std::vector<float>> vectors_of(const HttpAsk& ask, const Entry& entry,
                                             model::serve::EmbeddingRequest request, Line* line);
  std::vector<double> scores_of(const HttpAsk& ask, const Entry& entry, const model::serve::RerankRequest& request,
                                Line* line);
  HttpReply post(const HttpAsk& ask, const FoundPath& path, Line* line);
  HttpReply get(const HttpAsk& ask, const FoundPath& path);
  HttpReply one_response(const HttpAsk& ask, const std::string& id);
  void log(const HttpAsk& ask, int status, double seconds, const Line& line);

  using Digest = std::array<unsigned char, 32>;
  std::vector<Entry> entries_;
  std::vector<Digest> keys_;
  bool log_json_, strict_;
  int64_t started_, slots_;
  Origins origins_;
  std::atomic<bool> is_draining_{false};
  model::serve::RequestCounts counts_;
  model::serve::ResponseStore responses_;
  std::shared_ptr<model::infer::PrefixFiles> prefixes_;
  ClientRates rates_;
  std::mutex log_mutex_;
};

}  // namespace lumen::cli
