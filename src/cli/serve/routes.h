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
#include "model/serve/forms/forms.h"
#include "model/serve/serve.h"

namespace lumen::cli {

struct RouteOptions {
  std::vector<std::string> keys;  // valid API keys; empty: none is required
  bool log_json = false;
  std::shared_ptr<model::PrefixFiles> prefixes = nullptr;  // where the models store their cached prefixes
  double client_rate = 0;                                  // requests per second of one client; 0: no limit
};

class Routes {
 public:
  // A model and its scheduler; both must outlive this object.
  struct Entry {
    const model::ServedModel* model;
    model::Scheduler* scheduler;
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
  HttpReply route(const HttpAsk& ask, Line* line, bool* is_logged);
  HttpReply generate(const HttpAsk& ask, Line* line, bool* is_logged);
  std::shared_ptr<Running> begin(const HttpAsk& ask, Line* line, bool* is_stream);
  HttpReply count_tokens(const HttpAsk& ask, Line* line);
  HttpReply whole(const HttpAsk& ask, Running& running, Line* line);
  bool stream(const HttpAsk& ask, Running& running, Line* line, int* status, const HttpReply::Write& write);
  HttpReply embed(const HttpAsk& ask, Line* line);
  HttpReply other_post(const HttpAsk& ask, Line* line);
  HttpReply get(const HttpAsk& ask) const;
  void log(const HttpAsk& ask, int status, double seconds, const Line& line);

  using Digest = std::array<unsigned char, 32>;
  std::vector<Entry> entries_;
  std::vector<Digest> keys_;
  bool log_json_;
  int64_t started_;
  std::atomic<bool> is_draining_{false};
  model::RequestCounts counts_;
  model::ResponseStore responses_;
  std::shared_ptr<model::PrefixFiles> prefixes_;
  ClientRates rates_;
  std::mutex log_mutex_;
};

}  // namespace lumen::cli
