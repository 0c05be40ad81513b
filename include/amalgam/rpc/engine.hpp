#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/handler.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/rpc/type_name.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

class interceptor;

/// The ports of an engine: one URI, several at once, or ports that are open already.
///     engine one{"tcp://127.0.0.1:0"};  engine two{{"shm://", "tcp://"}};
struct endpoints {
    endpoints(const char* one) : uris{one} {}
    endpoints(std::string_view one) : uris{std::string(one)} {}
    endpoints(const std::string& one) : uris{one} {}
    endpoints(std::initializer_list<const char*> several) : uris(several.begin(), several.end()) {}
    endpoints(std::vector<std::string> several) : uris(std::move(several)) {}
    endpoints(std::unique_ptr<port> one) { ports.push_back(std::move(one)); }
    endpoints(std::vector<std::unique_ptr<port>> several) : ports(std::move(several)) {}

    std::vector<std::string> uris;
    std::vector<std::unique_ptr<port>> ports;
};

/// How an engine runs. Every field has a default that suits most.
struct engine_options {
    std::string name = "amalgam";  ///< Of its streams, in the OS and in logs.
    /// Execution streams. The first owns the ports and runs handlers; the others run what
    /// is spawned on them, and handlers that ask for them by `procedure_options::in`.
    unsigned streams = 1;
    std::vector<int> cpus{};  ///< The core of each stream, in order; -1 or missing: any.
    std::chrono::nanoseconds spin = adaptive_spin;   ///< Polling time before an idle stream sleeps.
    port_options ports{};                            ///< Of ports opened by URI.
    const transport_registry* transports = nullptr;  ///< Null: the native ones, shared.
    /// Messages to one peer that may wait for room before callers are held back.
    std::size_t max_queued = 1024;
    /// Requests served at once; more are answered `overloaded`. One-way calls are not refused.
    std::size_t max_running = 16384;
    /// Answers to one peer that wait because it does not read may hold this much, each counted
    /// with 4 KiB on top. While they hold more its requests are answered `overloaded` and run
    /// nothing; when it leaves as much again of those unread, it is cut off.
    std::size_t max_unread_bytes = std::size_t{64} << 20;
    /// Look at every call; see interceptor.hpp.
    std::vector<std::shared_ptr<interceptor>> interceptors{};
    /// How this engine's calls are encoded; replies come in the same. Every engine reads both.
    amalgam::encoding encoding = amalgam::encoding::native;
    /// Calls and their replies carry a CRC-32C. What arrives damaged is not run, and its caller
    /// gets `corrupt`. Peers that do not ask for it check and answer all the same.
    bool checksum = false;
    /// How long stop() waits for calls that are under way, in either direction.
    std::chrono::milliseconds drain{1000};
};

/// Where a handler runs.
enum class handler : std::uint8_t {
    ult,     ///< In a ULT of its own: it may wait, call others, take its time.
    inline_  ///< On the progress stream, at once: for short ones that never wait.
};

/// What a caller knows about a procedure.
struct calling_options {
    /// Running it twice does no harm: it may be retried; see bound_procedure::retrying().
    bool idempotent = false;
};

/// How a procedure is served.
struct procedure_options {
    handler run = handler::ult;
    pool* in = nullptr;  ///< Whose streams run the ULTs; null: the engine's first.
    /// Under which id: a name may be served by several, each in its own way. Callers choose by
    /// `procedure.on(peer, provider)`.
    std::uint16_t provider = 0;
};

/// Calls procedures elsewhere and serves its own, over one or several ports.
///
/// Names that begin with "amalgam." are the engine's own: "amalgam.ping" gives its number back.
/// Owner:   owns its ports and streams; the destructor is stop().
/// Threads: any member from any thread or ULT, unless said otherwise. Handlers of one engine
///          run as ULTs of its first stream: between two waits nobody runs beside them.
/// Failure: the constructor throws what the transports say, in one sentence.
/// Cost:    with nothing to do, no CPU.
class engine {
public:
    explicit engine(endpoints where, engine_options options = {});
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine();

    /// What others pass to lookup(): of the first port that listens; empty when none does.
    std::string address() const;
    /// Of all ports that listen, in order.
    std::vector<std::string> addresses() const;

    /// Names a peer by its address, and starts to reach it through the port of that transport.
    /// Does not wait for an answer: whether there is one shows in the calls.
    /// Failure: throws error{invalid} for a malformed address, error{unsupported} when no port
    ///          of this engine speaks its transport.
    peer lookup(std::string_view address);
    result<peer> try_lookup(std::string_view address);

    /// Serves `name` by `function`, typed by its parameters and result. Parameters of type
    /// std::string_view and std::span<const T> borrow from the message for the handler's time.
    /// Failure: throws error{invalid} when the name is taken, or has another signature at another
    ///          provider, is empty
    ///          or longer than 255 bytes; error{closed} after stop().
    template <typename Function>
    requires(!std::is_function_v<Function>) void define(std::string_view name, Function function,
                                                        procedure_options options = {}) {
        define<typename detail::callable_signature<Function>::type>(name, std::move(function),
                                                                    options);
    }
    /// The same for a callable that fits several signatures: define<int(int)>("f", generic).
    template <typename Signature, typename Function>
    requires(std::is_function_v<Signature>) void define(std::string_view name, Function function,
                                                        procedure_options options = {}) {
        add_handler(
            name, signature_text<Signature>(), options,
            std::make_unique<detail::typed_handler<Function, Signature>>(std::move(function)));
    }
    /// Serves `name` no more; calls under way end in their own time. False: no such name.
    bool undefine(std::string_view name, std::uint16_t provider = 0);

    /// How to call `name` elsewhere. Asks nobody: whether a peer has it shows in the call.
    template <typename Signature>
    amalgam::procedure<Signature> procedure(std::string_view name, calling_options how = {}) {
        return {*core_, intern(name, signature_text<Signature>()), how.idempotent};
    }

    /// Runs `function()` as a ULT of the engine's first stream and waits for its result. Calls
    /// from in there need no hand-over between threads: the fastest way to make many.
    template <typename Function>
    auto run(Function function) -> std::invoke_result_t<Function&> {
        return spawn(std::move(function)).get();
    }
    /// The same without waiting.
    template <typename Function>
    auto spawn(Function function) -> future<std::invoke_result_t<Function&>> {
        using value = std::invoke_result_t<Function&>;
        promise<value> result;
        future<value> later = result.get_future();
        amalgam::post(stream(),
                      [result = std::move(result), function = std::move(function)]() mutable {
                          try {
                              if constexpr (std::is_void_v<value>) {
                                  function();
                                  result.set_value();
                              } else {
                                  result.set_value(function());
                              }
                          } catch (...) {
                              result.set_exception(std::current_exception());
                          }
                      });
        return later;
    }

    /// Execution stream `index`; 0 owns the ports.
    execution_stream& stream(std::size_t index = 0);
    std::size_t stream_count() const noexcept;
    /// The clock that deadlines go by.
    clock::time_point now() const noexcept;
    /// Numbers of this engine, by name: "rpc.calls", "rpc.malformed" …
    counter_set& counters() noexcept;

    /// Ends in bounded time: takes no new calls from either side, waits `drain` at most for
    /// those under way, then fails the rest with `closed`. Idempotent. Handlers that never
    /// return are left behind. Inside one of the engine's own ULTs, or on a driven engine, it
    /// fails the rest at once. Any number may stop at once: those outside return when it has
    /// ended, one inside leaves it to whoever began.
    void stop();

    /// What the engine stands on; for layers above.
    detail::engine_core& core() noexcept { return *core_; }

private:
    void end();
    void add_handler(std::string_view name, std::string signature, procedure_options options,
                     std::unique_ptr<detail::handler_base> handler);
    const detail::remote_procedure& intern(std::string_view name, std::string signature);

    detail::engine_core* core_;
};

}  // namespace amalgam
