// Any bytes as contents of a federated run's messages, as settings and as frames; what is accepted packs to the same
// bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "apps/federate/messages.h"
#include "apps/federate/secure/sum.h"
#include "base/check.h"
#include "base/error.h"
#include "tests/fuzz/mutators/binary.h"

namespace {

// What unpacks is packed again.
template <class Unpack, class Pack>
void there_and_back(const std::string& bytes, const Unpack& unpack, const Pack& pack) {
  try {
    const auto message = unpack(bytes);
    LUMEN_CHECK(pack(message) == bytes);
  } catch (const lumen::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  there_and_back(bytes, model::unpack_speaker, model::pack_speaker);
  there_and_back(bytes, model::unpack_join, model::pack_join);
  there_and_back(bytes, model::unpack_task, model::pack_task);
  there_and_back(bytes, model::unpack_wait, model::pack_wait);
  there_and_back(bytes, model::unpack_update, model::pack_update);
  there_and_back(bytes, model::unpack_group, model::pack_group);
  there_and_back(bytes, model::unpack_masked, model::pack_masked);
  there_and_back(bytes, model::unpack_tell, model::pack_tell);
  there_and_back(bytes, model::unpack_seed, model::pack_seed);
  // A client is given any group, in which it may stand.
  try {
    model::SumGroup group = model::unpack_group(bytes);
    model::SumPartner partner("a");
    for (model::GroupMember& m : group.members)
      if (m.name == "a") m.key = partner.key();
    if (group.members.size() < 100) LUMEN_CHECK(partner.masked(group, std::array{1.0F, -2.0F}).size() == 2);
  } catch (const Error&) {
  }
  there_and_back(bytes, model::unpack_weights, model::pack_weights);
  try {
    std::string left = bytes;
    while (const auto frame = take_frame(model::kFederate, left, 4096)) LUMEN_CHECK(frame->content.size() <= 4096);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
