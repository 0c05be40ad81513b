#include "rpc/call/result_fetch.hpp"

#include <utility>

#include "rpc/call/caller.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/memory/loans.hpp"

namespace amalgam::detail {

result_fetch::result_fetch(engine_core& core, const peer& from, const rendezvous_values& what,
                           pending_call& whose, buffer room, loan_ids loans)
    : transfer_record(target_of(core, from, what.key)),
      from_(from),
      what_(what),
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
    if (why.what.ok() && !what_.are(room_.bytes())) {
        context_of(*core_).found_damage();
        why = {{errc::corrupt}, std::string(damaged_rendezvous)};
    }
    if (call_ != nullptr) caller_of(*core_).fetched(*call_, why, room_.bytes(), loans_);
    loans_of(*core_).release(from_, loans_);
    drop_hold();
}

void result_fetch::release() noexcept {
    drop_hold();
}

}  // namespace amalgam::detail
