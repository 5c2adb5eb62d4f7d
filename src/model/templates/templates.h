// Renders chats to text and tokens: an interpreter of the part of Jinja used by models, in a sandbox
// (docs/decisions/0012-a-template-interpreter-of-our-own.md), and the normal form of its messages.
//
// May include: base, base/file, base/structured, model/text/tokenizer, model/text/unicode, model/text/vocabulary.
// Offers: answer_form.h, messages.h.
#pragma once

#include "model/templates/chat.h"
#include "model/templates/chat_template.h"
