// Links relocatable objects of AMD targets into the shared objects that their loader needs.
#pragma once

#include <string>

namespace lumen::emit {

// Bytes of a relocatable ELF file to bytes of a shared one. Error with the linker's message.
std::string link_shared(const std::string& object);

}  // namespace lumen::emit
