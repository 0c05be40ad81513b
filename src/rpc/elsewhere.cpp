#include "rpc/elsewhere.hpp"

#include <new>
#include <utility>

#include <fmt/format.h>

#include "rpc/engine_core.hpp"
#include "rpc/wire.hpp"

namespace amalgam::detail {

namespace {

transfer_target target_of(engine_core& core, const peer& from, const remote_key& key) noexcept {
    transfer_target target;
    target.core = &core;
    target.there = from;
    target.key = key;
    return target;
}

}  // namespace

void add_key(std::vector<std::byte>& extras, const remote_key& key) {
    add_extra(extras, extra::elsewhere, key.encode());
}

bool key_in(const_bytes extras, remote_key& into) noexcept {
    const const_bytes wire = find_extra(extras, extra::elsewhere);
    if (wire.empty()) return false;
    into = remote_key::decode(wire.first<remote_key::wire_bytes>());
    return true;
}

lent_values::lent_values(engine_core& core, body&& values, const peer& only)
    : alive_(core), values_(values.take()) {
    // Regions are of bytes that may be written, as far as their types go; this one's rights say
    // that it is not.
    const mutable_bytes all(const_cast<std::byte*>(values_.values.data()), values_.values.size());
    shown_ = std::make_unique<exposure>(core, scatter(&all, 1), access::read, only);
}

failure fetch_values(engine_core& core, const peer& from, const remote_key& key, buffer& into) {
    const mutable_bytes all = into.bytes();
    waited_transfer get(target_of(core, from, key));
    get.get(scatter(&all, 1));
    return get.run();
}

result_fetch::result_fetch(engine_core& core, const peer& from, const remote_key& key,
                           call_record& whose, buffer room, loan_ids loans)
    : transfer_record(target_of(core, from, key)),
      from_(from),
      call_(&whose),
      room_(std::move(room)),
      into_(room_.bytes()),
      loans_(std::move(loans)) {
    get(scatter(&into_, 1));
}

void result_fetch::give_up() noexcept {
    call_ = nullptr;
    ++holds_;
    request_cancel();
}

void result_fetch::over() noexcept {
    if (call_ != nullptr) core_->calls().fetched(*call_, why, room_.bytes(), loans_);
    if (peer_state* const there = core_->peers().find(from_)) {
        core_->lending().release(*there, loans_);
    }
    drop_hold();
}

void result_fetch::release() noexcept {
    drop_hold();
}

}  // namespace amalgam::detail
