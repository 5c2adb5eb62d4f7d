// Which of several processes of one run writes messages: rank 0 writes all of them; the others write none of their
// notes and warnings, and errors with their rank in front. Proved by tests/base/messages/log_rank_test.cpp.
#pragma once

#include <string>

namespace lumen {

// This process is number `rank` of several; -1, as at the start: it is alone.
void set_log_rank(int rank);
bool is_secondary_rank();   // above 0
std::string rank_prefix();  // "rank 2: " on secondary ranks, otherwise empty

}  // namespace lumen
