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
  there_and_back(bytes, federate::unpack_speaker, federate::pack_speaker);
  there_and_back(bytes, federate::unpack_join, federate::pack_join);
  there_and_back(bytes, federate::unpack_task, federate::pack_task);
  there_and_back(bytes, federate::unpack_wait, federate::pack_wait);
  there_and_back(bytes, federate::unpack_update, federate::pack_update);
  there_and_back(bytes, federate::unpack_group, federate::pack_group);
  there_and_back(bytes, federate::unpack_masked, federate::pack_masked);
  there_and_back(bytes, federate::unpack_tell, federate::pack_tell);
  there_and_back(bytes, federate::unpack_seed, federate::pack_seed);
  // A client is given any group, in which it may stand.
  try {
    federate::SumGroup group = federate::unpack_group(bytes);
    federate::SumPartner partner("a");
    for (federate::GroupMember& m : group.members)
      if (m.name == "a") m.key = partner.key();
    if (group.members.size() < 100) LUMEN_CHECK(partner.masked(group, std::array{1.0F, -2.0F}).size() == 2);
  } catch (const Error&) {
  }
  there_and_back(bytes, federate::unpack_weights, federate::pack_weights);
  try {
    std::string left = bytes;
    while (const auto frame = take_frame(federate::kFederate, left, 4096)) LUMEN_CHECK(frame->content.size() <= 4096);
  } catch (const Error&) {
  }
  return 0;
}

FUZZ_MUTATOR(mutators::change_binary, 0)
