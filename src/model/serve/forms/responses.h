// OpenAI's Responses API: input and output items, and answers that continue earlier ones. Proved by
// tests/model/serve/forms_test.cpp.
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/serve/reply.h"

namespace lumen::model::serve {

// The latest responses and the messages that led to them, for requests that continue or read them: in memory, limited
// in number and bytes.
class ResponseStore {
 public:
  explicit ResponseStore(size_t most = 1000, size_t most_bytes = size_t{64} << 20)
      : most_(most), most_bytes_(most_bytes) {}
  // `messages`: null if the response cannot be continued.
  void put(const std::string& id, const nlohmann::ordered_json& messages,
           const nlohmann::ordered_json& response = nullptr);
  std::optional<nlohmann::ordered_json> find(const std::string& id) const;      // the messages
  std::optional<nlohmann::ordered_json> response(const std::string& id) const;  // as it was sent
  bool erase(const std::string& id);                                            // false if it is not stored

 private:
  struct Kept {
    std::string id, messages, response;
    size_t bytes() const { return messages.size() + response.size(); }
  };
  std::optional<nlohmann::ordered_json> read(const std::string& id, std::string Kept::* text) const;
  const size_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the latest first
  std::map<std::string, std::list<Kept>::iterator> by_id_;
  size_t bytes_ = 0;
};

struct ResponsesAsk {
  nlohmann::ordered_json chat;      // the request as a chat request
  nlohmann::ordered_json messages;  // all messages so far, without instructions
  nlohmann::ordered_json told;      // members of the request that the response repeats
  bool is_stored = true;
};
// Refusal as for chats, and if `previous_response_id` is not in the store (any more). `notes`: gets the parts without
// effect; null: they are refused.
ResponsesAsk read_responses(const nlohmann::ordered_json& body, const ResponseStore& store,
                            FieldNotes* notes = nullptr);

class ResponsesReply : public Reply {
 public:
  // `store`: receives the messages at the end; must outlive this object.
  ResponsesReply(const GenerationRequest& request, const ServedModel& model, int64_t created, ResponsesAsk ask,
                 ResponseStore* store);
  nlohmann::ordered_json whole() const override;
  std::string first_events() override;
  std::string events(Delta delta) override;
  std::string last_events() override;
  std::string failed_events(const Refusal& refusal) const override;

 private:
  nlohmann::ordered_json response(const char* status, bool with_usage) const;
  nlohmann::ordered_json output(const char* status) const;
  nlohmann::ordered_json text_item(const std::string& text, const char* status) const;
  nlohmann::ordered_json reasoning_item(const char* status) const;
  nlohmann::ordered_json call_item(size_t call, const std::string& arguments, const char* status) const;
  std::string event(const std::string& type, nlohmann::ordered_json data);
  std::string open_item(CallPiece::Kind kind, size_t call);
  std::string close_item();
  const char* status() const;
  void keep() const;

  ResponsesAsk ask_;
  ResponseStore* store_;
  std::string item_id_, reasoning_id_;
  int64_t sequence_ = 0, item_ = -1;  // number of events sent, and the last item started
  bool is_open_ = false;
  CallPiece::Kind kind_ = CallPiece::Kind::text;  // of the last item: text, reasoning, or the beginning of a call
  size_t call_ = 0;                               // the tool call that is being sent
};

}  // namespace lumen::model::serve
