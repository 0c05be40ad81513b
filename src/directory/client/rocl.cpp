#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/rocl.h>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"

using namespace amalgam;
using detail::context_core;

struct rocl_attrl {
    attribute_list asked;     // As built by the caller.
    attribute_list answered;  // The same with open attributes filled.
    std::size_t most = attribute_list::max_bytes;
    std::map<std::string, std::size_t, std::less<>> most_of;   // Of requested values.
    std::map<std::string, std::size_t, std::less<>> too_long;  // Values left out.
};

struct rocl_handler {
    resource_search search;
};

namespace {

int code_of(errc code) noexcept {
    switch (code) {
        case errc::ok:
            return 0;
        case errc::denied:
            return ROCL_EDENIED;
        case errc::invalid:
        case errc::mismatch:
        case errc::unsupported:
        case errc::in_use:
            return ROCL_EINVALID;
        case errc::not_found:
            return ROCL_ENOTFOUND;
        case errc::timed_out:
            return ROCL_ETIMEDOUT;
        case errc::overloaded:
            return ROCL_EOVERLOADED;
        case errc::no_memory:
        case errc::too_large:
            return ROCL_ENOMEMORY;
        case errc::unreachable:
        case errc::disconnected:
        case errc::unavailable:
            return ROCL_EDISCONNECTED;
        case errc::closed:
            return ROCL_ECLOSED;
        default:
            return ROCL_EFAILED;
    }
}

/// The result of `work()`, or the code of its exception.
template <typename Work>
int guarded(const char* what, Work work) noexcept {
    try {
        return work();
    } catch (const error& why) {
        log(log_level::info, "rocl", why.what(), {{"call", what}, {"code", why.code().code}});
        return code_of(why.code().code);
    } catch (const std::bad_alloc&) {
        return ROCL_ENOMEMORY;
    } catch (const std::exception& why) {
        log(log_level::warn, "rocl", why.what(), {{"call", what}});
        return ROCL_EFAILED;
    }
}

/// A buffer owned by the program, or being sent.
struct buffer_state {
    message_buffer memory;
    std::size_t asked = 0;  // The memory may be larger.
    std::mutex lock;
    unsigned sending = 0;
    int last = 0;  // Result of the last send.
    bool was_sent = false;
    bool goes_back = false;  // Once sent.
};

/// A buffer's message being sent.
class buffer_send final : public detail::queued_send {
public:
    buffer_send(std::int32_t its_tag, std::size_t length, std::shared_ptr<buffer_state> state)
        : queued_send(kind::message, its_tag, length), state_(std::move(state)) {
        const std::lock_guard one(state_->lock);
        ++state_->sending;
    }
    ~buffer_send() override {
        if (state_ != nullptr) settle(ROCL_ECLOSED);
    }
    message_buffer& content() noexcept override { return state_->memory; }

private:
    void ended(const failure* why) noexcept override {
        if (why != nullptr)
            log(log_level::info, "rocl", why->sentence,
                {{"call", "rocl_send"}, {"code", why->what.code}});
        settle(why != nullptr ? code_of(why->what.code) : 0);
    }
    void settle(int how) noexcept {
        const auto state = std::exchange(state_, nullptr);
        const std::lock_guard one(state->lock);
        --state->sending;
        state->last = how;
    }
    std::shared_ptr<buffer_state> state_;
};

/// The process's context and buffers.
struct process_state {
    std::mutex lock;
    std::shared_ptr<context> here;
    using buffer_entry = std::pair<void* const, std::shared_ptr<buffer_state>>;
    std::unordered_map<void*, std::shared_ptr<buffer_state>, std::hash<void*>, std::equal_to<void*>,
                       detail::small_block_allocator<buffer_entry>>
        buffers;
};

// A C interface without handles needs one global state.
process_state& process() {
    static process_state* const only = new process_state;  // Never freed: in use at exit.
    return *only;
}

std::shared_ptr<context> current() {
    process_state& all = process();
    const std::lock_guard one(all.lock);
    if (all.here) return all.here;
    throw error(errc::closed, "there is no context; call rocl_init() first");
}

/// The result of `work(core of the context)`. If rocl_exit() closes it meanwhile: error{closed}.
template <typename Work>
auto in_context(Work work) {
    const auto here = current();
    return here->core().while_open([&] { return work(here->core()); });
}

std::shared_ptr<buffer_state> buffer_at(void* ptr) {
    process_state& all = process();
    const std::lock_guard one(all.lock);
    const auto at = all.buffers.find(ptr);
    if (at != all.buffers.end()) return at->second;
    throw error(errc::invalid,
                "this is not a buffer from rocl_bfget() or rocl_recv(), or was already returned");
}

void* keep(message_buffer memory) {
    auto state = detail::make_small<buffer_state>();
    state->memory = std::move(memory);
    state->asked = state->memory.size();
    void* const at = state->memory.data();
    process_state& all = process();
    const std::lock_guard one(all.lock);
    all.buffers[at] = std::move(state);
    return at;
}

resource_id id_of(int gid) noexcept {
    return gid == ROCL_ANY ? resource_id::none : static_cast<resource_id>(gid);
}

void check(bool fact, const char* sentence) {
    if (!fact) throw error(errc::invalid, sentence);
}

int filled(rocl_attrl* attrs, const found_resource& found) {
    if (attrs == nullptr) return static_cast<int>(found.id);
    attribute_list answer;
    attrs->too_long.clear();
    for (const attribute& each : found.what.view()) {
        const auto limit = attrs->most_of.find(each.name);
        const bool is_too_long =
            !each.is_open && limit != attrs->most_of.end() && each.value.size() > limit->second;
        attribute_list longer = answer;
        if (!each.is_open && !is_too_long) longer.add(each.name, each.value);
        if (longer.size() == answer.size() || longer.bytes().size() > attrs->most) {
            if (!each.is_open) attrs->too_long.emplace(each.name, each.value.size());
            longer = std::move(answer);
            longer.ask(each.name, 0);
        }
        answer = std::move(longer);
    }
    attrs->answered = std::move(answer);
    return static_cast<int>(found.id);
}

void give_back(void* ptr) {
    process_state& all = process();
    const std::lock_guard one(all.lock);
    all.buffers.erase(ptr);  // A send in flight holds it, too.
}

const attribute_list& query_of(const rocl_attrl* attrs) {
    static const attribute_list nothing;
    return attrs == nullptr ? nothing : attrs->asked;
}

}  // namespace

extern "C" {

int rocl_init(void) {
    return guarded("rocl_init", [] {
        process_state& all = process();
        const std::lock_guard one(all.lock);
        check(all.here == nullptr, "this process already has a context; call rocl_exit() first");
        all.here = std::make_shared<context>();
        return static_cast<int>(all.here->id());
    });
}

int rocl_exit(void) {
    return guarded("rocl_exit", [] {
        std::shared_ptr<context> last = current();
        {
            process_state& all = process();
            const std::lock_guard one(all.lock);
            all.here.reset();
        }
        last->core().finish_sends();
        last->core().close();  // Even if another call still holds it.
        return 0;
    });
}

rocl_attrl_t* rocl_new_attrl(int maxlen) {
    rocl_attrl* made = nullptr;
    (void)guarded("rocl_new_attrl", [&] {
        check(maxlen >= 0, "a list's capacity must not be negative; 0 means the maximum");
        made = new rocl_attrl;
        if (maxlen > 0) made->most = static_cast<std::size_t>(maxlen);
        return 0;
    });
    return made;
}

int rocl_add_attr(rocl_attrl_t* attrs, const char* name, const void* val, int len) {
    return guarded("rocl_add_attr", [&] {
        check(attrs != nullptr && name != nullptr && len >= 0,
              "an attribute needs a list, a name, and a length that is not negative");
        attribute_list longer = attrs->asked;
        const auto bytes = static_cast<std::size_t>(len);
        if (val == nullptr) {
            longer.ask(name, bytes);
        } else {
            longer.add(name, const_bytes(static_cast<const std::byte*>(val), bytes));
        }
        if (longer.bytes().size() > attrs->most) return int{ROCL_ENOMEMORY};
        if (val == nullptr && len > 0) attrs->most_of.emplace(name, bytes);
        attrs->asked = std::move(longer);
        attrs->answered = attrs->asked;
        return 0;
    });
}

void* rocl_get_attr(rocl_attrl_t* attrs, const char* name, int* len) {
    if (attrs == nullptr || name == nullptr) return nullptr;
    const auto value = attrs->answered.find(name);
    if (!value) {
        const auto left_out = attrs->too_long.find(std::string_view(name));
        const std::size_t bytes = left_out != attrs->too_long.end() ? left_out->second : 0;
        if (len != nullptr) *len = static_cast<int>(bytes);
        return nullptr;
    }
    if (len != nullptr) *len = static_cast<int>(value->size());
    return const_cast<std::byte*>(value->data());
}

int rocl_kill_attrl(rocl_attrl_t* attrs) {
    delete attrs;
    return 0;
}

int rocl_register(rocl_attrl_t* attrs) {
    return guarded("rocl_register", [&] {
        check(attrs != nullptr, "a resource needs a list of attributes, which may be empty");
        return in_context(
            [&](context_core& core) { return static_cast<int>(core.add(attrs->asked)); });
    });
}

int rocl_delete(int gid) {
    return guarded("rocl_delete", [&] {
        in_context([&](context_core& core) { core.remove_or_throw(id_of(gid)); });
        return 0;
    });
}

int rocl_query(int* gid, rocl_attrl_t* attrs) {
    return guarded("rocl_query", [&] {
        check(gid != nullptr, "rocl_query() needs a pointer to the identifier");
        const auto [found, silent] = in_context([&](context_core& core) {
            return core.find(*gid > 0 ? id_of(*gid) : resource_id::none, query_of(attrs));
        });
        if (!found) return int{silent == 0 ? ROCL_ENOTFOUND : ROCL_EPARTIAL};
        *gid = filled(attrs, *found);
        return 0;
    });
}

rocl_handler_t* rocl_query_start(rocl_attrl_t* attrs) {
    rocl_handler* begun = nullptr;
    (void)guarded("rocl_query_start", [&] {
        begun = new rocl_handler{current()->search(query_of(attrs))};
        return 0;
    });
    return begun;
}

int rocl_query_next(rocl_handler_t* handler, rocl_attrl_t* attrs) {
    return guarded("rocl_query_next", [&] {
        check(handler != nullptr, "this query was not started");
        auto found = handler->search.next();
        if (found) return filled(attrs, *found);
        return int{handler->search.missed() == 0 ? ROCL_ENOTFOUND : ROCL_EPARTIAL};
    });
}

int rocl_query_stop(rocl_handler_t* handler) {
    delete handler;
    return 0;
}

void* rocl_bfget(int len) {
    void* got = nullptr;
    (void)guarded("rocl_bfget", [&] {
        check(len >= 0, "a buffer's length must not be negative");
        got = keep(in_context(
            [&](context_core& core) { return core.take_buffer(static_cast<std::size_t>(len)); }));
        return 0;
    });
    return got;
}

int rocl_bfret(void* ptr) {
    return guarded("rocl_bfret", [&] {
        (void)buffer_at(ptr);
        give_back(ptr);
        return 0;
    });
}

int rocl_bftoret(void* ptr) {
    return guarded("rocl_bftoret", [&] {
        const auto state = buffer_at(ptr);
        {
            const std::lock_guard one(state->lock);
            state->goes_back = true;
            if (!state->was_sent) return 0;
        }
        give_back(ptr);
        return 0;
    });
}

int rocl_bfstat(void* ptr) {
    return guarded("rocl_bfstat", [&] {
        const auto state = buffer_at(ptr);
        const std::lock_guard one(state->lock);
        return state->sending != 0 ? 1 : state->last;
    });
}

int rocl_send(int ogid, int dgid, int tag, void* ptr, int len) {
    return guarded("rocl_send", [&] {
        const auto state = in_context([&](context_core& core) {
            auto sent = buffer_at(ptr);
            const auto bytes = static_cast<std::size_t>(len);
            check(len >= 0 && bytes <= sent->asked,
                  "a message is longer than its buffer, or its length is negative");
            check(tag >= 0 && ogid > 0 && dgid > 0,
                  "tags must not be negative, and identifiers must be positive");
            core.check_own(id_of(ogid));
            core.find_way(id_of(dgid));
            core.start_send(id_of(ogid), id_of(dgid),
                            detail::make_small<buffer_send>(tag, bytes, sent));
            return sent;
        });
        {
            const std::lock_guard one(state->lock);
            state->was_sent = true;
            if (!state->goes_back) return 0;
        }
        give_back(ptr);
        return 0;
    });
}

int rocl_recv(int dgid, int ogid, int tag, void** ptr, int* aogid, int* atag, int* alen,
              int timeout) {
    return guarded("rocl_recv", [&] {
        check(ptr != nullptr, "rocl_recv() needs a pointer for the buffer");
        check(tag >= 0 || tag == ROCL_ANY, "a tag must not be negative; ROCL_ANY matches any tag");
        message_choice which{id_of(ogid), {}};
        if (tag != ROCL_ANY) which.tag = tag;
        const std::chrono::nanoseconds time =
            timeout < 0 ? std::chrono::nanoseconds::max() : std::chrono::milliseconds(timeout);
        auto got =
            in_context([&](context_core& core) { return core.receive(id_of(dgid), which, time); });
        if (!got) return int{ROCL_ETIMEDOUT};
        if (aogid != nullptr) *aogid = static_cast<int>(got->from);
        if (atag != nullptr) *atag = got->tag;
        if (alen != nullptr) *alen = static_cast<int>(got->content.size());
        *ptr = keep(std::move(got->content));
        return 0;
    });
}

}  // extern "C"
