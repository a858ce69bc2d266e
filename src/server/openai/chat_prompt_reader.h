// Reads the fields of a request from which a chat's prompt is made. Any thread.
#pragma once

#include "server/generation/chat_prompt.h"
#include "server/openai/field_reader.h"

namespace deltad {

// messages, add_generation_prompt, continue_final_message, chat_template_kwargs.
const FieldTable<ChatPromptFields>& chat_prompt_field_table();

}  // namespace deltad
