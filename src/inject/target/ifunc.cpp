#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/ifunc.h>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>
#include <amalgam/rpc/engine.hpp>

using namespace amalgam;

struct amalgam_ifunc_context {
    explicit amalgam_ifunc_context(const char* uri)
        : on(uri, {.name = "ifunc", .progress = {.by = progress_by::caller}}),
          address(on.address()),
          inject(on) {}

    engine on;
    const std::string address;
    const std::thread::id opened_by = std::this_thread::get_id();
    injector inject;
    void* target_args = nullptr;  // Of the current poll.
    injection_options options;
    std::unique_ptr<injection_target> target;  // Created when there is code to run.
};

struct amalgam_ifunc_ep {
    peer there;
};

struct amalgam_ifunc {
    injected_function function;
};

struct amalgam_ifunc_msg {
    injection message;
};

namespace {

thread_local std::string last_error;

int code_of(errc code) noexcept {
    switch (code) {
        case errc::invalid:
        case errc::denied:
        case errc::mismatch:
        case errc::unsupported:
        case errc::too_large:
            return AMALGAM_IFUNC_EINVALID;
        case errc::not_found:
            return AMALGAM_IFUNC_ENOTFOUND;
        case errc::unreachable:
        case errc::disconnected:
            return AMALGAM_IFUNC_EUNREACHABLE;
        case errc::no_memory:
            return AMALGAM_IFUNC_ENOMEMORY;
        default:
            return AMALGAM_IFUNC_EFAILED;
    }
}

/// The result of `work`, or the code of its exception.
template <typename Work>
int code_or(Work work) noexcept {
    try {
        return work();
    } catch (const error& why) {
        last_error = why.what();
        return code_of(why.code().code);
    } catch (const std::bad_alloc& why) {
        last_error = why.what();
        return AMALGAM_IFUNC_ENOMEMORY;
    } catch (const std::exception& why) {
        last_error = detail::text_of(why);
        return AMALGAM_IFUNC_EFAILED;
    }
}

void check(bool fact, const char* sentence) {
    if (!fact) throw error(errc::invalid, sentence);
}

void check_before_target(const amalgam_ifunc_context* context) {
    check(context != nullptr, "expected a context from amalgam_ifunc_open()");
    check(
        context->target == nullptr,
        "functions already run here; set trust and exports before the first amalgam_poll_ifunc()");
}

}  // namespace

extern "C" {

const char* amalgam_ifunc_error(void) {
    return last_error.c_str();
}

int amalgam_ifunc_open(const char* uri, amalgam_ifunc_context_t** context_p) {
    return code_or([&] {
        check(uri != nullptr && context_p != nullptr,
              "expected a URI and a pointer for the context");
        *context_p = new amalgam_ifunc_context(uri);
        return 0;
    });
}

void amalgam_ifunc_close(amalgam_ifunc_context_t* context) {
    delete context;
}

const char* amalgam_ifunc_address(amalgam_ifunc_context_t* context) {
    return context->address.c_str();
}

int amalgam_ifunc_ep_create(amalgam_ifunc_context_t* context, const char* address,
                            amalgam_ifunc_ep_t** ep_p) {
    return code_or([&] {
        check(context != nullptr && address != nullptr && ep_p != nullptr,
              "expected a context, an address, and a pointer for the endpoint");
        *ep_p = new amalgam_ifunc_ep{context->on.lookup(address)};
        return 0;
    });
}

void amalgam_ifunc_ep_destroy(amalgam_ifunc_ep_t* ep) {
    delete ep;
}

int amalgam_register_ifunc(amalgam_ifunc_context_t* context, const char* ifunc_name,
                           amalgam_ifunc_t** ifunc_p) {
    return code_or([&] {
        check(context != nullptr && ifunc_name != nullptr && ifunc_p != nullptr,
              "expected a context, a name, and a pointer for the function");
        *ifunc_p = new amalgam_ifunc{context->inject.add(code_image::find(ifunc_name))};
        return 0;
    });
}

void amalgam_deregister_ifunc(amalgam_ifunc_context_t*, amalgam_ifunc_t* ifunc) {
    delete ifunc;
}

int amalgam_ifunc_msg_create(amalgam_ifunc_t* ifunc, const void* source_args,
                             size_t source_args_size, amalgam_ifunc_msg_t** msg_p) {
    return code_or([&] {
        check(ifunc != nullptr && msg_p != nullptr &&
                  (source_args != nullptr || source_args_size == 0),
              "expected a function, its arguments, and a pointer for the message");
        const const_bytes args(static_cast<const std::byte*>(source_args), source_args_size);
        *msg_p = new amalgam_ifunc_msg{ifunc->function.create(args)};
        return 0;
    });
}

void amalgam_ifunc_msg_free(amalgam_ifunc_msg_t* msg) {
    delete msg;
}

void* amalgam_ifunc_msg_payload(amalgam_ifunc_msg_t* msg, size_t* bytes_p) {
    const mutable_bytes payload = msg->message.payload();
    *bytes_p = payload.size();
    return payload.data();
}

int amalgam_ifunc_msg_send_nbix(amalgam_ifunc_ep_t* ep, const amalgam_ifunc_msg_t* msg) {
    return code_or([&] {
        check(ep != nullptr && msg != nullptr, "expected an endpoint and a message");
        msg->message.post(ep->there);
        return 0;
    });
}

int amalgam_ifunc_trust(amalgam_ifunc_context_t* context, const char* signer) {
    return code_or([&] {
        check_before_target(context);
        injection_policy& allows = context->options.allows;
        if (signer == nullptr) {
            allows.unsigned_too = true;
        } else {
            allows.trusted.push_back(parse_signer_key(signer));
        }
        return 0;
    });
}

int amalgam_ifunc_export(amalgam_ifunc_context_t* context, const char* name, void* address) {
    return code_or([&] {
        check_before_target(context);
        check(name != nullptr && address != nullptr, "expected a name and an address");
        context->options.exports[name] = address;
        return 0;
    });
}

int amalgam_poll_ifunc(amalgam_ifunc_context_t* context, void* target_args) {
    return code_or([&] {
        check(context != nullptr, "expected a context from amalgam_ifunc_open()");
        // Another thread would deadlock: only this one makes progress.
        check(context->opened_by == std::this_thread::get_id(),
              "this context was opened by another thread, expected that thread to poll it; open "
              "one in each thread");
        const injection_policy& allows = context->options.allows;
        if (context->target == nullptr && (allows.unsigned_too || !allows.trusted.empty())) {
            context->options.target_args_of = [context] { return context->target_args; };
            context->target = std::make_unique<injection_target>(context->on, context->options);
        }
        context->target_args = target_args;
        const auto runs = [&] { return context->target == nullptr ? 0 : context->target->runs(); };
        const std::uint64_t before = runs();
        context->on.progress();
        return static_cast<int>(runs() - before);
    });
}

int amalgam_ifunc_event_fd(amalgam_ifunc_context_t* context) {
    return context->on.wait_handle();
}

}  // extern "C"
