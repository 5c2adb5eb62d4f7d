// Selects which of several processes of one run writes messages: rank 0 writes all; the others suppress notes and
// warnings and prefix errors with their rank. Proved by tests/base/messages/log_rank_test.cpp.
#pragma once

#include <string>

namespace lumen {

// This process has number `rank`; -1, the initial value: it is the only one.
void set_log_rank(int rank);
bool is_secondary_rank();   // above 0
std::string rank_prefix();  // "rank 2: " on secondary ranks, otherwise empty

}  // namespace lumen
