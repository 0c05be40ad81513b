#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
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
#include <amalgam/rpc/detail/procedure_name.hpp>
#include <amalgam/rpc/engine_streams.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/peer_lost.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/rpc/type_name.hpp>
#include <amalgam/tasks/detail/exit_ult.hpp>
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
    /// is spawned on them, and handlers that ask for them by procedure_options.
    stream_set streams{};
    std::vector<pool_options> pools{};  ///< More pools than each stream's own, for them to serve.
    /// The pool, or the stream, that runs handlers which do not say where; empty: the first stream,
    /// or with progress_by::own_stream the second.
    std::string handlers{};
    progress_options progress{};                     ///< Who looks after the ports, and how.
    std::chrono::nanoseconds spin = adaptive_spin;   ///< Polling time before an idle stream sleeps.
    port_options ports{};                            ///< Of ports opened by URI.
    const transport_registry* transports = nullptr;  ///< Null: the native ones, shared.
    /// Messages to one peer that may wait for room before callers are held back.
    std::size_t max_queued = 1024;
    /// Requests served at once; more are answered `overloaded`.
    std::size_t max_running = 16384;
    /// One-way calls of other engines that run here at once, each in a ULT of its own: those of
    /// `inline_` handlers do not count. Past it a peer that has less than its share of them is
    /// still served, up to twice this many in all. Any other does not run: it is counted here as
    /// "rpc.overloaded", and its sender is told, counts it as "rpc.one_ways_refused" and logs it.
    std::size_t max_one_ways = 65536;
    /// Answers to one peer that wait because it does not read may hold this much, each counted
    /// with 4 KiB on top. While they hold more its requests are answered `overloaded` and run
    /// nothing; when it leaves as much again of those unread, it is cut off.
    std::size_t max_unread_bytes = std::size_t{64} << 20;
    /// The same of all peers together: past it the one that leaves most unread is cut off.
    std::size_t max_unread_bytes_total = std::size_t{1} << 30;
    /// Results that peers fetch may take this much until they have been fetched or released: those
    /// of one peer, and those of all together. Past the first the peer's next such result becomes
    /// `overloaded`; past the second, too, unless another peer holds more: then that one's
    /// connection ends. One result always fits. Memory of descriptors is not counted.
    std::size_t max_borrowed_bytes = std::size_t{512} << 20;
    std::size_t max_borrowed_bytes_total = std::size_t{2} << 30;
    /// Arguments of one request or one-way call that is served, or the result of one call, or one
    /// value of a stream, may take this much, however they come: more is `too_large`.
    std::size_t max_values_bytes = std::size_t{1} << 30;
    /// Look at every call; see interceptor.hpp.
    std::vector<std::shared_ptr<interceptor>> interceptors{};
    /// How this engine's calls are encoded; replies come in the same. Every engine reads both.
    amalgam::encoding encoding = amalgam::encoding::native;
    /// Calls and their replies carry a CRC-32C, also of values that are fetched. What arrives
    /// damaged is not run, and its caller gets `corrupt`. Peers that do not ask for it check and
    /// answer all the same.
    bool checksum = false;
    /// How long stop() waits for calls that are under way, in either direction, for posted ones to
    /// leave, and for peers that fetch arguments or results: 30 days at most.
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
    pool* in = nullptr;  ///< Whose streams run the ULTs; null: as engine_options::handlers says.
    std::string_view in_pool{};  ///< The same, by its name among the engine's pools.
    /// Run by so many streams that the engine makes for this procedure alone. They end with
    /// undefine(), or if calls still run there, with the next define() or undefine(), or stop().
    unsigned streams = 0;
    /// Under which id: a name may be served by several, each in its own way. Callers choose by
    /// `procedure.on(peer, provider)`.
    std::uint16_t provider = 0;
};

struct engine_config;

/// One of the ways to an engine that is known by several addresses.
struct peer_way {
    peer by;              ///< The engine, by this way as long as it stands; then by another.
    std::string address;  ///< Where that was looked up, or came from.
    capabilities can;     ///< Of this engine's port.
};

/// Calls procedures elsewhere and serves its own, over one or several ports.
///
/// Names that begin with "amalgam." are the library's own: "amalgam.ping" gives its number back.
/// Anybody may call those; to define or undefine one is refused.
/// Owner:   owns its ports and streams; the destructor is stop(). It may run anywhere, also in the
///          engine's own handlers and callbacks. Where it runs on the engine's own streams it does
///          not wait for these: they end when nothing runs there any more, or `drain` later. So
///          what runs there goes on after the destructor.
///          A child of fork() has none of the engine's threads: there calls, spawn() and the like
///          throw error{closed}, with a sentence that says so, stop() and the destructor do
///          nothing, and exit() does not wait for it. What the parent's code waited for at the
///          fork never comes there. A new engine in the child is like any other. A child that
///          was forked by a handler, a continuation, an interceptor, on_progress of a transfer or
///          the end of what was given to expose_owned() or post_held() must exec() or _exit()
///          before that returns; else it is ended there, as execution_stream says.
/// Threads: any member from any thread or ULT, unless said otherwise. The engine's own threads
///          have the program's signals blocked, all but those that an instruction raises, SIGPROF
///          and the real-time ones; so do programs that handlers start, unless they set a mask.
///          Handlers of one engine run as ULTs of one stream: between two waits nobody runs beside
///          them, unless its options spread them.
/// Failure: the constructor throws what the transports say, in one sentence.
/// Cost:    with nothing to do, no CPU.
class engine {
public:
    explicit engine(endpoints where, engine_options options = {});
    /// As parse_engine_config() and load_engine_config() give it.
    explicit engine(const engine_config& config);
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

    /// Finds an engine that is known by several addresses, as addresses() gives them, and names it
    /// by the best that works: this engine itself, then this process, this host, the network;
    /// among equals one whose transfers need no messages, then the first of the list. Asks
    /// behind every address who is there, and waits until all have answered, but no longer than
    /// 200 ms after the first; parks the ULT or thread. See peer::explain().
    ///
    /// When that way is lost, new calls and descriptors' transfers go by the next best; calls under
    /// way end with `disconnected` (or are made again: bound_procedure::retrying()). Only when
    /// no way is left is the peer lost. Ways that were lost are not tried again: look up again.
    ///
    /// Never uses an address behind which another engine answers. One that other hosts may have,
    /// too (shm://…), is used only when an address of the list that means the same everywhere
    /// (tcp://…) leads to the same engine, or there is none in the list.
    /// Failure: throws error{unreachable} with what is wrong with each address; error{invalid} for
    ///          a malformed one or none, and where the caller cannot wait; error{unsupported}
    ///          when no port of this engine speaks any of the transports.
    peer lookup(std::span<const std::string> addresses);
    peer lookup(std::initializer_list<std::string_view> addresses);
    result<peer> try_lookup(std::span<const std::string> addresses);
    /// The same without waiting.
    future<peer> start_lookup(std::span<const std::string> addresses);
    /// All ways by which that engine is reached now, the best first; none when it is gone. One that
    /// was looked up by one address has one.
    std::vector<peer_way> ways(const peer& who);

    /// Serves `name` by `function`, typed by its parameters and result. Parameters of type
    /// std::string_view and std::span<const T> borrow from the message for the handler's time.
    /// Failure: throws error{invalid} when the name is taken, or has another signature at another
    ///          provider, is empty or longer than 255 bytes; error{denied} when it begins with
    ///          "amalgam."; error{closed} after stop().
    template <typename Function>
    requires(!std::is_function_v<Function>) void define(detail::procedure_name name,
                                                        Function function,
                                                        procedure_options options = {}) {
        using types = detail::served<typename detail::callable_signature<Function>::type>;
        using typed =
            detail::typed_handler<Function, typename types::way, typename types::signature>;
        add_handler(name, signature_text<typename types::signature>(), options, types::form,
                    std::make_unique<typed>(std::move(function)));
    }
    /// The same for a callable that fits several signatures: define<int(int)>("f", generic).
    template <typename Signature, typename Function>
    requires(std::is_function_v<Signature>) void define(detail::procedure_name name,
                                                        Function function,
                                                        procedure_options options = {}) {
        using typed =
            detail::typed_handler<Function, typename detail::served<Signature>::way, Signature>;
        static_assert(detail::callable_as<Function, Signature>,
                      "the handler cannot be called with the signature's arguments");
        add_handler(name, signature_text<Signature>(), options, detail::answer_form::result,
                    std::make_unique<typed>(std::move(function)));
    }
    /// Serves `name` no more; calls under way end in their own time. False: no such name, or the
    /// engine is stopped. Failure: throws error{denied} when it begins with "amalgam.".
    bool undefine(detail::procedure_name name, std::uint16_t provider = 0);

    /// How to call `name` elsewhere. Asks nobody: whether a peer has it shows in the call.
    template <typename Signature>
    amalgam::procedure<Signature> procedure(std::string_view name, calling_options how = {}) {
        return {*core_, intern(name, signature_text<Signature>()), how.idempotent};
    }

    /// Runs `function()` as a ULT where handlers run and waits for its result. On the stream that
    /// makes progress, calls need no hand-over between threads: the fastest way to make many.
    /// this_task::exit() ends it; who waits for a value then gets error{canceled}.
    /// Failure: throws what the function throws; error{closed} after stop(); error{invalid} where
    ///          the caller must not wait.
    template <typename Function>
    auto run(Function function) -> std::invoke_result_t<Function&> {
        check_runs();
        check_may_wait();
        return spawn(std::move(function)).get();
    }
    /// The same without waiting. Failure: throws error{closed} after stop().
    template <typename Function>
    auto spawn(Function function) -> future<std::invoke_result_t<Function&>> {
        using value = std::invoke_result_t<Function&>;
        promise<value> result;
        future<value> later = result.get_future();
        const stays_open until_it_is_there(*core_);
        amalgam::post(pool(),
                      [result = std::move(result), function = std::move(function)]() mutable {
                          try {
                              if constexpr (std::is_void_v<value>) {
                                  function();
                                  result.set_value();
                              } else {
                                  result.set_value(function());
                              }
                          } catch (const detail::exit_ult&) {
                              // A value that is not there is told of by the end of its promise.
                              if constexpr (std::is_void_v<value>) result.set_value();
                          } catch (...) {
                              result.set_exception(std::current_exception());
                          }
                      });
        return later;
    }

    /// Execution stream `index`; 0 owns the ports. Failure: throws error{invalid} when there is
    /// none.
    execution_stream& stream(std::size_t index = 0);
    std::size_t stream_count() const noexcept;
    /// A pool by the name that the options give it, or the stream it belongs to; without one, where
    /// handlers run that do not say where.
    /// Failure: throws error{not_found} with the names there are.
    amalgam::pool& pool(std::string_view name = {});
    /// Changes how progress is made, while it is made: no message is lost or waits for it. Handlers
    /// that run stay where they are.
    /// Failure: throws error{invalid} for a change from or to progress_by::caller, in virtual time,
    ///          and when the first stream would be left with handlers.
    void set_progress(progress_options how);
    /// The options as JSON, with what was left open filled in and the addresses that ports got;
    /// parse_engine_config() reads it.
    std::string configuration() const;

    /// With progress_by::caller the engine has no thread for its ports. The loop's thread, which is
    /// the one that made the engine until another calls progress(), watches wait_handle() with
    /// epoll or poll, and calls progress() when it is readable: that is all. Outside of a ULT that
    /// thread must not wait for what only progress() can bring: calls, run() and stop() by another
    /// thread. Calls and run() throw error{invalid} there; start() and post() are fine.
    /// Other threads may do anything, as with every engine.
    ///
    /// Does what there is to do for ports, timers and ready ULTs, but stops soon after `most`
    /// things; returns how many it did. Never blocks. After it, the wait handle is readable as soon
    /// as there is more to do, whoever brought that about.
    /// Failure: throws error{invalid} inside of itself, and for engines that have a thread.
    std::size_t progress(std::size_t most = 256);
    /// Throws error{invalid} for engines that have a thread. Valid until the engine is destroyed.
    int wait_handle() const;
    /// When the earliest timer is due; the wait handle tells, too.
    std::optional<clock::time_point> next_timer() const noexcept;

    /// `function(who, why)` runs once for each peer that is lost from now on: gone, cut off, or not
    /// reached (`unreachable`); `who.address()` says where that was. As a ULT where handlers run,
    /// so it may wait; one at a time for each subscription. Peers that stop() parts from are not
    /// lost. Until the subscription ends. Failure: throws error{invalid} for an empty function.
    [[nodiscard]] peer_lost_subscription on_peer_lost(
        std::function<void(const peer&, status)> function);

    /// The clock that deadlines go by.
    clock::time_point now() const noexcept;
    /// Numbers of this engine, by name: "rpc.calls", "rpc.malformed" …
    counter_set& counters() noexcept;

    /// Ends in bounded time: takes no new calls from either side, waits `drain` at most for
    /// those under way, for posted ones to leave, and for what peers fetch of either to be fetched,
    /// then fails the rest with `closed`.
    /// Idempotent. Then whatever waits on the engine's own streams, in a handler, run() or spawn(),
    /// gets error{canceled} there, as from ult::cancel(), so that it ends; one that has not ended a
    /// second later, or waits in what no cancel ends, such as stop() of another engine past
    /// `drain`, is left behind, and who waits for it with run() or the future of spawn() is not
    /// told. A handler in a pool of the user's goes on, unless it produces a stream. Inside one of
    /// the engine's own ULTs, or on a driven engine, it fails the rest at once. Where nobody can
    /// wait, such as in functions of call_then(), inline handlers, on_progress, interceptors and
    /// tasklets, of this engine or another, it returns at once: no new call begins, and the rest is
    /// done as soon as what called it has returned: run() and spawn() throw error{closed} only from
    /// then on. Any number may stop at once: those outside
    /// return when it has ended, one inside leaves it to whoever began.
    void stop();

    /// What the engine stands on; for layers above.
    detail::engine_core& core() noexcept { return *core_; }

private:
    /// While one lives, the engine's streams run. Throws error{closed} after stop().
    class stays_open {
    public:
        explicit stays_open(detail::engine_core& core);
        ~stays_open();
        stays_open(const stays_open&) = delete;
        stays_open& operator=(const stays_open&) = delete;

    private:
        detail::engine_core& core_;
    };

    void end();
    void check_runs() const;
    void check_may_wait() const;
    void add_handler(detail::procedure_name name, std::string signature, procedure_options options,
                     detail::answer_form form, std::unique_ptr<detail::handler_base> handler);
    const detail::remote_procedure& intern(std::string_view name, std::string signature);

    detail::engine_core* core_;
};

}  // namespace amalgam
