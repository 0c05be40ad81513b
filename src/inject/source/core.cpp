#include "inject/source/core.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/inject/detail/started_call.hpp>
#include <amalgam/inject/image.h>
#include <amalgam/rpc/extension/inside.hpp>

#include "inject/image/contents.hpp"
#include "inject/link/library_symbols.hpp"
#include "inject/protocol/payload_memory.hpp"
#include "inject/protocol/report_failure.hpp"

namespace amalgam::detail {

namespace {
/// The payload that a thread is building: its maximum and chosen size.
struct payload_in_the_making {
    std::size_t most = 0;
    std::size_t bytes = 0;
};
thread_local payload_in_the_making* in_the_making = nullptr;

/// Exceptions of the image's own functions may not outlive it: callers get their text.
template <typename Work>
void run_own(const code_image& image, std::string_view what, Work work) {
    report_failure(work, [&](const char* why) {
        throw error(errc::handler_failed,
                    fmt::format("{} of the image {} failed: {}", what, image.name(), why));
    });
}
}  // namespace

extern "C" int amalgam_inject_payload_size(std::size_t bytes) {
    if (in_the_making == nullptr || bytes > in_the_making->most) return -1;
    in_the_making->bytes = bytes;
    return 0;
}

std::size_t source_image::most_payload(const_bytes args) const {
    std::size_t most = 0;
    run_own(image, "payload_get_max_size",
            [&] { most = payload_max_size(const_cast<std::byte*>(args.data()), args.size()); });
    return most;
}

std::size_t source_image::make_payload(void* payload, std::size_t most, const_bytes args) const {
    payload_in_the_making now{most, most};
    int failed = 0;
    run_own(image, "payload_init", [&] {
        const struct making {
            explicit making(payload_in_the_making* what) { in_the_making = what; }
            ~making() { in_the_making = nullptr; }
        } meanwhile(&now);
        failed = payload_init(payload, most, const_cast<std::byte*>(args.data()), args.size());
    });
    if (failed != 0)
        throw error(errc::handler_failed,
                    fmt::format("{}_payload_init returned {}", image.name(), failed));
    return now.bytes;
}

source_image::source_image(const code_image& made) : image(made), id(id_of(made)) {
    const auto exported = [&](const char* what) {
        return made.contents().find(fmt::format("{}_{}", made.name(), what)) != nullptr;
    };
    const bool makes_payloads = exported("payload_init") && exported("payload_get_max_size");
    if (made.architecture() != this_architecture() || !(makes_payloads || exported("signature")))
        return;
    const auto symbols = [](std::string_view name) {
        // Symbols that only main needs, which does not run here.
        static const auto nothing = [] { throw error(errc::unsupported, "this is not a target"); };
        void* found = library_symbol(name);
        if (found == nullptr) found = runtime_symbol(name);
        return found != nullptr ? found : reinterpret_cast<void*>(static_cast<void (*)()>(nothing));
    };
    linked = std::make_unique<linked_image>(made, symbols, linked_image::not_started());
    const auto own = [&](const char* what) {
        return linked->find(fmt::format("{}_{}", made.name(), what));
    };
    if (const auto tell = reinterpret_cast<tell_signature>(own("signature")))
        tell(
            [](void* into, const void* text, std::size_t bytes) {
                static_cast<std::string*>(into)->assign(static_cast<const char*>(text), bytes);
            },
            &signature);
    if (!makes_payloads) {
        linked.reset();
        return;
    }
    payload_max_size = reinterpret_cast<max_size>(own("payload_get_max_size"));
    payload_init = reinterpret_cast<init>(own("payload_init"));
}

source_core::source_core(engine& on)
    : on_(on),
      run_(on.procedure<at_target::run>(at_target::run_name)),
      post_(on.procedure<at_target::post>(at_target::post_name)),
      run_code_(on.procedure<at_target::run_code>(at_target::run_code_name)),
      post_code_(on.procedure<at_target::post_code>(at_target::post_code_name)),
      run_attached_(on.procedure<at_target::run_attached>(at_target::run_attached_name)),
      bring_(on.procedure<at_target::bring>(at_target::bring_name)) {}

void source_core::start() {
    define_first(on_.core(), at_source::fetch_name, "an injector", [&] {
        on_.define(library_name{at_source::fetch_name},
                   [self = shared_from_this()](image_id which) { return self->fetched(which); });
    });
}

void source_core::stop() noexcept {
    const served_name own{at_source::fetch_name};
    end_serving(on_.core(), {&own, 1});
}

std::shared_ptr<const source_image> source_core::add(const code_image& image) {
    auto made = std::make_shared<const source_image>(image);
    if (made->linked != nullptr) {
        made->linked->kept_by(made);
        run_own(image, "a static object", [&] { made->linked->start(); });
    }
    const std::lock_guard one(lock_);
    std::erase_if(images_, [](const auto& each) { return each.expired(); });
    images_.push_back(made);
    return made;
}

std::vector<std::byte> source_core::fetched(image_id which) {
    const std::lock_guard one(lock_);
    for (const auto& each : images_) {
        const auto here = each.lock();
        if (here == nullptr || here->id != which) continue;
        return {here->image.bytes().begin(), here->image.bytes().end()};
    }
    return {};
}

std::vector<std::byte> source_core::call(const peer& there, const sent_code& what,
                                         std::chrono::nanoseconds within) const {
    const clock::time_point begun = on_.now();
    const auto left = [&] {  // Remaining time.
        if (within == std::chrono::nanoseconds::max()) return within;
        return std::max(within - (on_.now() - begun), std::chrono::nanoseconds(0));
    };
    const bool always = what.how == shipping::always;
    const const_bytes code = always ? what.image.bytes() : const_bytes();
    const std::vector<amalgam::bulk> attached(what.attached.begin(), what.attached.end());
    const auto run = [&] {
        if (!attached.empty())
            return run_attached_.on(there).within(left())(id_of(what.image), code, attached,
                                                          {what.payload});
        if (always) return run_code_.on(there).within(left())(code, {what.payload});
        return run_.on(there).within(left())(id_of(what.image), {what.payload});
    };
    const auto end_of = [](run_answer answer) {
        if (answer.code != errc::ok) throw error(answer.code, answer.sentence);
        return std::move(answer.result);
    };
    // A target that keeps few images may drop it at once.
    for (int attempts = 3;; --attempts) {
        run_answer answer = run();
        if (!answer.wants_code) return end_of(std::move(answer));
        if (attempts == 0)
            throw error(errc::overloaded, "the target drops the image before it can run");
        (void)end_of(bring_.on(there).within(left())(what.image.bytes()));
    }
}

void source_core::post(const peer& there, const source_image& what,
                       const std::shared_ptr<payload_memory>& payload, shipping how,
                       std::span<const amalgam::bulk> attached) const {
    const rest_of_message rest{{payload->data, payload->bytes}};
    const bool always = how == shipping::always;
    if (!attached.empty()) {
        run_attached_.on(there).post_held(payload, what.id,
                                          always ? what.image.bytes() : const_bytes(),
                                          {attached.begin(), attached.end()}, rest);
    } else if (always) {
        post_code_.on(there).post_held(payload, what.image.bytes(), rest);
    } else {
        post_.on(there).post_held(payload, what.id, rest);
    }
}

void refuse_empty(bool is_there, const char* what) {
    if (is_there) return;
    throw error(errc::invalid,
                fmt::format("this {} is empty: it was default-constructed or moved from; "
                            "injector::add() returns functions, and their create() messages",
                            what));
}

}  // namespace amalgam::detail

namespace amalgam {

using detail::refuse_empty;

mutable_bytes injection::payload() noexcept {
    if (payload_ == nullptr) return {};
    return {payload_->data, payload_->bytes};
}

const_bytes injection::payload() const noexcept {
    if (payload_ == nullptr) return {};
    return {payload_->data, payload_->bytes};
}

unsigned injection::attach(bulk what) {
    attached_.push_back(std::move(what));
    return static_cast<unsigned>(attached_.size() - 1);
}

std::vector<std::byte> injection::call(const peer& there, std::chrono::nanoseconds within) const {
    refuse_empty(core_ != nullptr, "message");
    return core_->call(there, {image_->image, payload(), how_, attached_}, within);
}

future<std::vector<std::byte>> injection::start(const peer& there,
                                                std::chrono::nanoseconds within) const {
    refuse_empty(core_ != nullptr, "message");
    return (new detail::started_call<std::vector<std::byte>>)
        ->launch(core_->where().pool(), [=, same = *this] { return same.call(there, within); });
}

void injection::post(const peer& there) const {
    refuse_empty(core_ != nullptr, "message");
    core_->post(there, *image_, payload_, how_, attached_);
}

pool& injected_function::where_started() const {
    return core_->where().pool();
}

void injected_function::check_signature(const std::string& expected) const {
    refuse_empty(image_ != nullptr, "function");
    if (image_->signature.empty() || image_->signature == expected) return;
    throw error(errc::mismatch, fmt::format("the image {} has the signature {}, but is added as {}",
                                            image_->image.name(), image_->signature, expected));
}

const code_image& injected_function::image() const noexcept {
    static const code_image none;
    return image_ != nullptr ? image_->image : none;
}

injection injected_function::create(const_bytes source_args, shipping how) const {
    refuse_empty(image_ != nullptr, "function");
    const detail::source_image& by = *image_;
    if (by.payload_init == nullptr)
        throw error(errc::not_found,
                    fmt::format("the image {0} cannot make payloads here: it has no "
                                "{0}_payload_get_max_size and {0}_payload_init, or is for another "
                                "processor; fill its message's payload yourself",
                                by.image.name()));
    injection made = create(by.most_payload(source_args), how);
    made.payload_->bytes =
        by.make_payload(made.payload().data(), made.payload().size(), source_args);
    return made;
}

injection injected_function::create(std::size_t payload_bytes, shipping how) const {
    refuse_empty(image_ != nullptr, "function");
    injection made;
    made.core_ = core_;
    made.image_ = image_;
    made.how_ = how;
    try {
        made.payload_ = std::make_shared<detail::payload_memory>(payload_bytes,
                                                                 image_->image.payload_alignment());
    } catch (const std::bad_alloc&) {
        throw error(errc::no_memory,
                    fmt::format("cannot allocate a payload of {} bytes", payload_bytes));
    }
    std::memset(made.payload_->data, 0, payload_bytes);
    return made;
}

injector::injector(engine& on) : core_(std::make_shared<detail::source_core>(on)) {
    core_->start();
}

injector::~injector() {
    core_->stop();
}

injected_function injector::add(code_image image) {
    if (!image)
        throw error(errc::invalid,
                    "there is no image to add; code_image::load() or find() returns one");
    injected_function made;
    made.core_ = core_;
    made.image_ = core_->add(image);
    return made;
}

}  // namespace amalgam
