#include "rpc/serve/answer_record.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <utility>

#include "rpc/call/extras.hpp"
#include "rpc/limits.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/serve/server.hpp"

namespace amalgam::detail {

answer_record::answer_record(served_call& answers, answer_values& what, left_function left) noexcept
    : outgoing(&on_sent), work_unit(&run_send), call(answers), values(what), has_left(left) {
    is_answer = true;
    to = answers.from();
    tag = answers.id();
}

void answer_record::frame(status what, std::string_view text) noexcept {
    if (call.one_way()) return;  // Nobody reads it.
    try {
        if (!what.ok()) [[unlikely]]
            keep_sentence(text);
        has_value = what.ok();
        value_bytes = what.ok() ? values.values.size() : 0;
        pack(what, message_kind::reply);
    } catch (...) {
        give_up_values();
    }
}

[[gnu::noinline]] void answer_record::keep_sentence(std::string_view text) {
    values.values.clear();
    values.lends.clear();
    archive_writer(values.values)
        .raw(text.data(), std::min(text.size(), limits::max_sentence_bytes));
}

/// Out of memory: the answer becomes that.
[[gnu::noinline]] void answer_record::give_up_values() noexcept {
    has_value = false;
    value_bytes = 0;
    values.values.clear();
    values.lends.clear();
    extras_.clear();
    std::byte* const header = values.values.front(reply_bytes);
    write_reply(header, {errc::no_memory});
    pieces[0] = {header, reply_bytes};
    piece_count = 1;
}

void answer_record::frame_item(std::shared_ptr<loan_end>& returned) {
    value_bytes = values.values.size();
    pack({}, message_kind::item, &returned);
}

void answer_record::pack(status what, message_kind kind, std::shared_ptr<loan_end>* returned) {
    std::uint8_t flags = call.owner().answer_flags(call.flags(), what);
    if (values.values.size() > call.owner().eager_bytes(to) && !call.one_way()) [[unlikely]] {
        send_by_rendezvous((flags & wire_flag::checked) != 0, returned);
    }
    if (!values.lends.empty()) [[unlikely]]
        add_loans(extras_, values.lends);
    if (call.times != nullptr) [[unlikely]]
        tell_times();
    if (!extras_.empty()) flags |= wire_flag::extras;
    std::byte* const header = values.values.front(reply_bytes);
    write_reply(header, what, flags, kind);
    if (extras_.empty()) {
        pieces[0] = {header, reply_bytes + values.values.size()};
        piece_count = 1;
    } else {
        pieces = {const_bytes(header, reply_bytes), extras_, values.values.bytes()};
        piece_count = 3;
    }
    if ((flags & wire_flag::checked) == 0) return;
    checksum_ = checksum_of({pieces.data(), piece_count});
    pieces[piece_count++] = checksum_;
}

[[gnu::noinline]] void answer_record::tell_times() {
    std::array<std::byte, call_times::wire_bytes> wire;
    call.times->write(wire.data());
    add_extra(extras_, extra::times, wire);
}

void answer_record::send_by_rendezvous(bool checked, std::shared_ptr<loan_end>* returned) {
    engine_core& core = call.owner().context().core();
    if (returned != nullptr) *returned = std::make_shared<loan_end>();
    auto held = std::make_shared<lent_values>(core, std::move(values.values), to,
                                              returned != nullptr ? *returned : nullptr);
    add_rendezvous(extras_, held->key(to.port()), held->bytes(), checked);
    const origin between{&core, to, &values.lends, nullptr};
    const std::size_t bytes = held->bytes().size();
    lend(&between, std::move(held), bytes);
    if (returned != nullptr) values.lends.back().end = *returned;
}

void answer_record::on_sent(completion& self, status what, std::size_t) noexcept {
    auto& answer = static_cast<answer_record&>(self);
    answer.where = outgoing::at::nowhere;
    if (!what.ok() && !answer.values.lends.empty()) {
        answer.call.owner().loans().withdraw(answer.to, answer.values.lends);
    }
    answer.has_left(answer);
}

void answer_record::run_send(work_unit& self) noexcept {
    auto& answer = static_cast<answer_record&>(self);
    if (answer.call.owner().send_answer(answer)) answer.has_left(answer);
}

void waited_answer::send() noexcept {
    engine_context& context = call.owner().context();
    if (context.on_owner()) {
        if (call.owner().send_answer(*this)) return;
        waiter me;
        me.waits_for("rpc answer to be sent");
        who = &me;
        me.park();
    } else {
        waiter me;
        me.waits_for("rpc answer to be sent");
        who = &me;
        if (context.hand_over(*this)) me.park();
    }
}

}  // namespace amalgam::detail
