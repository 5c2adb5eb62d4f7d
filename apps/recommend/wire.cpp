#include "apps/recommend/wire.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::recommend {
namespace {

constexpr Protocol kPlans{.magic = 0x4e4c504c, .version = 1, .kinds = 3, .no = uint16_t(MessageKind::no)};

}  // namespace

std::string packed(const Message& message) {
  return packed_frame(kPlans, {uint16_t(message.kind), message.content});
}

std::optional<Message> take_message(std::string& bytes, size_t most) {
  auto frame = take_frame(kPlans, bytes, most);
  if (!frame) return std::nullopt;
  return Message{MessageKind(frame->kind), std::move(frame->content)};
}

std::string pack_ask(const Ask& ask) {
  std::string out;
  const size_t n = std::min(ask.recent.size(), kMostAsked);
  put_number(out, ask.backbone);
  put_number(out, uint16_t(n));
  for (size_t i = ask.recent.size() - n; i < ask.recent.size(); ++i) put_number(out, uint32_t(ask.recent[i]));
  return out;
}

Ask unpack_ask(std::string_view content) {
  if (content.size() < 10) throw no_message("an ask of less than 10 bytes");
  Ask out{get_number<uint64_t>(content, 0), {}};
  const size_t n = get_number<uint16_t>(content, 8);
  if (n > kMostAsked || content.size() != 10 + 4 * n)
    throw no_message(fmt::format("{} bytes for {} items", content.size(), n));
  for (size_t i = 0; i < n; ++i) {
    const auto item = get_number<uint32_t>(content, 10 + 4 * i);
    if (item == 0 || item > 0x7fffffff) throw no_message(fmt::format("item {}", item));
    out.recent.push_back(item);
  }
  return out;
}

CloudCounts serve_plans(const Address& address, const CloudLimits& limits,
                        const std::function<Plan(const Ask&)>& answer, const std::function<void(int)>& listening,
                        const std::atomic<bool>& stop) {
  const ServeLimits bounds{limits.connections, limits.seconds, limits.rate, limits.asks, 10 + 4 * kMostAsked};
  const auto plan = [&](const Frame& frame) {
    if (frame.kind != uint16_t(MessageKind::ask)) throw no_message("devices only ask");
    return Frame{uint16_t(MessageKind::plan), pack_plan(answer(unpack_ask(frame.content)))};
  };
  return serve_frames(address, bounds, {kPlans, "devices", plan, listening}, stop);
}

Received ask_for_plan(const Address& address, const Ask& ask, double patience) {
  const Answered answered =
      ask_frame(address, kPlans, {uint16_t(MessageKind::ask), pack_ask(ask)}, patience, kMostContent,
                {"cloud", "`lumen recommend serve` is one; the plan a device has stays good"});
  if (answered.frame.kind != uint16_t(MessageKind::plan)) throw no_message("the cloud only plans");
  return {unpack_plan(answered.frame.content, "the cloud's message"), answered.bytes_out, answered.bytes_in,
          answered.seconds};
}

}  // namespace lumen::recommend
