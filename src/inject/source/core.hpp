#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <amalgam/inject/injector.hpp>
#include <amalgam/rpc/engine.hpp>

#include "inject/link/linked_image.hpp"
#include "inject/protocol/procedures.hpp"

namespace amalgam::detail {

/// An image at the source, where messages to it are made.
struct source_image {
    using max_size = std::size_t (*)(void* source_args, std::size_t bytes);
    using init = int (*)(void* payload, std::size_t payload_bytes, void* source_args,
                         std::size_t bytes);
    using tell_signature = void (*)(void (*take)(void* into, const void* text, std::size_t bytes),
                                    void* into);

    explicit source_image(const code_image& made);
    /// Maximum and final size of the payload. Throw error{handler_failed}.
    std::size_t most_payload(const_bytes args) const;
    std::size_t make_payload(void* payload, std::size_t most, const_bytes args) const;

    code_image image;
    const image_id id;
    std::unique_ptr<linked_image> linked;  // Null: other architecture, or no payload_init.
    max_size payload_max_size = nullptr;
    init payload_init = nullptr;
    std::string signature{};  ///< Its function's signature, like a procedure's; empty if not
                              ///< declared.
};

/// Throws error{invalid} for an empty message or function.
void refuse_empty(bool is_there, const char* what);

/// A message with code, or to code.
struct sent_code {
    const code_image& image;
    const_bytes payload;
    shipping how = shipping::once;
    std::span<const amalgam::bulk> attached{};
};

/// Sends code, and serves targets' requests for it.
///
/// Owner:   shared with running handlers.
/// Threads: any.
class source_core : public std::enable_shared_from_this<source_core> {
public:
    explicit source_core(engine& on);

    void start();
    void stop() noexcept;
    std::shared_ptr<const source_image> add(const code_image& image);

    std::vector<std::byte> call(
        const peer& there, const sent_code& what,
        std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    void post(const peer& there, const source_image& what,
              const std::shared_ptr<payload_memory>& payload, shipping how,
              std::span<const amalgam::bulk> attached) const;
    engine& where() const noexcept { return on_; }

private:
    std::vector<std::byte> fetched(image_id which);

    engine& on_;
    const procedure<at_target::run> run_;
    const procedure<at_target::post> post_;
    const procedure<at_target::run_code> run_code_;
    const procedure<at_target::post_code> post_code_;
    const procedure<at_target::run_attached> run_attached_;
    const procedure<at_target::bring> bring_;
    std::mutex lock_;
    std::vector<std::weak_ptr<const source_image>> images_;
};

}  // namespace amalgam::detail
