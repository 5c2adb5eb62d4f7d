// lumen ps
#include <fmt/ranges.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/fetch/fetch.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/servers/servers.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

struct PsFlags {
  bool json = false;
};

constexpr uint64_t kMostMetrics = uint64_t{4} << 20;  // bytes
constexpr double kPatience = 2;                       // seconds for a server's answer

struct Requests {
  int64_t running = 0, waiting = 0;
};

// The sum of a metric over the models of a server.
int64_t sum_of(std::string_view metrics, std::string_view name) {
  double sum = 0;
  for (size_t at = 0; at < metrics.size();) {
    const size_t end = std::min(metrics.find('\n', at), metrics.size());
    const std::string line(metrics.substr(at, end - at));
    const bool fits =
        line.starts_with(name) && line.size() > name.size() && (line[name.size()] == '{' || line[name.size()] == ' ');
    if (fits) sum += std::strtod(line.c_str() + line.rfind(' '), nullptr);
    at = end + 1;
  }
  return int64_t(sum);
}

// From the server's own metrics; nullopt where it requires a key, or there is no libcurl.
std::optional<Requests> requests_of(const ServerState& server) {
  const std::string host = server.host == "0.0.0.0" ? "127.0.0.1" : server.host == "::" ? "::1" : server.host;
  FetchRequest request;
  request.url = fmt::format("{}://{}:{}/metrics", server.has_tls ? "https" : "http",
                            host.find(':') == std::string::npos ? host : "[" + host + "]", server.port);
  request.most = kMostMetrics;
  request.connect_seconds = request.whole_seconds = kPatience;
  std::string body;
  const auto take = [&](const FetchReply&, std::string_view piece) {
    body += piece;
    return true;
  };
  try {
    const FetchReply reply = Fetcher().ask(request, take, [] { return interrupted().load(); });
    if (reply.failure != FetchFailure::none || reply.status != 200) return std::nullopt;
  } catch (const Error& missing) {
    verbose(missing.what());
    return std::nullopt;
  }
  return Requests{sum_of(body, "lumen_requests_running"), sum_of(body, "lumen_requests_waiting")};
}

int ps(const PsFlags& flags) {
  const std::vector<ServerState> servers = running_servers();
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  if (!flags.json)
    put(servers.empty() ? "no server of this user runs; `lumen serve -m MODEL` starts one\n"
                        : fmt::format("{:>8}  {:<21}  {:>10}  {:>8}  {:<17}  {}\n", "process", "address", "memory",
                                      "since", "requests", "models"));
  for (const ServerState& server : servers) {
    const uint64_t memory = memory_of_process(server.process);
    const double age = age_of_process(server);
    const std::optional<Requests> requests = requests_of(server);
    if (flags.json) {
      nlohmann::ordered_json row = {
          {"process", server.process}, {"host", server.host},    {"port", server.port}, {"tls", server.has_tls},
          {"models", server.models},   {"memory_bytes", memory}, {"seconds", age}};
      if (requests) row["running"] = requests->running, row["waiting"] = requests->waiting;
      out.push_back(row);
      continue;
    }
    const std::string load =
        requests ? fmt::format("{} run, {} wait", requests->running, requests->waiting) : "unknown";
    put(fmt::format("{:>8}  {:<21}  {:>10}  {:>8}  {:<17}  {}\n", server.process,
                    fmt::format("{}:{}", server.host, server.port), size_text(double(memory)), format_duration(age),
                    load, fmt::join(server.models, ", ")));
  }
  if (flags.json) put_text(out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return 0;
}

}  // namespace

void add_ps(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PsFlags>();
  CLI::App* sub = app.add_subcommand("ps", "Show your running servers: models, address, memory, requests");
  add_setting(*sub, "--json", flags->json);
  sub->footer(
      "The number of requests comes from GET /metrics; it is unknown if the server requires a key.\n"
      "Example:\n"
      "  lumen ps");
  set_action(*sub, command, flags, ps);
}

}  // namespace lumen::cli
