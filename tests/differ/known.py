"""Where Warren differs from RabbitMQ 4.3 on purpose, with the words of the docs that say so."""

from __future__ import annotations

from differ.known10 import KNOWN10
from differ.transcripts import Known

COUNTS = r"x-(?:acquired|delivery)-count: \d+"
ANY = r"(?s)^.*$"
"""All that was observed in a step."""
OK = r"Queue.DeclareOk.*"
TYPED = r"the value ('[^']*') of type '\w+'"


KNOWN: tuple[Known, ...] = (
    # ------------------------------------------------------------ counts
    Known(
        "| `x-delivery-count`, `x-acquired-count` | quorum | any queue |",
        "^(?!links[.]).*(?:classic|untyped)",
        warren=((rf", {COUNTS}", ""), (rf"{COUNTS}(?:, )?", ""), (r" headers=\{\}", "")),
    ),
    Known(
        "| `consumer_count` of a quorum queue |",
        "^consuming.consumers_that_are_counted ",
        rabbitmq=(("count=1$", "count=0"), ("consumer_count=3$", "consumer_count=2")),
    ),
    Known(
        "**What a dead letter brings with it.**",
        "",
        rabbitmq=((r"redelivered=True (?=.*x-death)", ""),),
    ),
    # ------------------------------------------------------------ queues without a type
    Known(
        "| declared again with `x-queue-type` '' | 406 |",
        "^untyped.untyped_equivalence 4[.]",
        rabbitmq=((ANY, ""),),
        warren=((OK, ""),),
    ),
    Known(
        "| `x-queue-mode`, `x-queue-version` | no effect | 406 | no effect, and not compared",
        "^untyped.untyped_equivalence 8[.]",
        rabbitmq=((ANY, ""),),
        warren=((OK, ""),),
    ),
    Known(
        "| `x-queue-master-locator` | 541: deprecated |",
        "^untyped.untyped_arguments 11[.]",
        rabbitmq=((ANY, ""),),
        warren=((OK, ""),),
    ),
    # ------------------------------------------------------------ texts
    Known(
        "**Other texts.** RabbitMQ names the types of inequivalent arguments only where one side",
        "^(?:declaring.|untyped.untyped_)equivalence",
        warren=((rf"received {TYPED} but current is {TYPED}", r"received \1 but current is \2"),),
    ),
    Known(
        "`alternate-exchange` or `x-match` that is no string",
        "^declaring.equivalence_of_an_exchange 9[.]",
        warren=((r"type for (.*): give a name", r"type 'signedint' for \1"),),
    ),
    Known(
        "`alternate-exchange` or `x-match` that is no string",
        "^declaring.binding_errors 14[.]",
        warren=((r"field type \(", "field type signedint ("),),
    ),
    Known(
        "for an empty exchange type",
        "^declaring.equivalence_of_an_exchange 11[.]",
        warren=(("unknown exchange type", "invalid exchange type"),),
    ),
    Known(
        "pattern that cannot be compiled",
        "^policies.parts_of_a_policy_that_are_refused [12][.]",
        rabbitmq=(("is invalid: .*", "is invalid"),),
        warren=(("is invalid: .*", "is invalid"),),
    ),
    Known(
        "RabbitMQ states -1 for an argument's",
        "^consuming.consumer_timeout_without_the_capability 5[.]",
        warren=(("used: 1000 ms", "used: -1 ms"),),
    ),
    Known(
        "So is `apply-to: streams`.",
        "^policies.parts_of_a_policy_that_are_refused 3[.]",
        rabbitmq=(("'streams', ", ""),),
    ),
    # ------------------------------------------------------------ traces
    Known(
        "`routed_queues` has the queues that exist, sorted",
        "^tracing.what_is_published ",
        rabbitmq=(
            (r"routed_queues: \['none'\]", "routed_queues: []"),
            (r"\['quorum', 'classic'\]", "['classic', 'quorum']"),
        ),
    ),
    Known(
        "`routed_queues` has the queues that exist, sorted",
        "^tracing.sender_selected_keys ",
        rabbitmq=((r"routed_queues: \[[^]]*'(classic|quorum)'[^]]*\]", r"routed_queues: ['\1']"),),
    ),
    Known(
        "the keys of BCC are those of published messages only",
        "^tracing.sender_selected_keys .* get delivered ",
        rabbitmq=(("'other', 'third'", "'other'"),),
    ),
    Known(
        "numbers without Erlang's marks",
        "^history.lengths_of_a_history (?:3|9|12|13)[.]",
        rabbitmq=(("''(x-[a-z-]+)''", r"'\1'"), ('<<"5">>', "5")),
    ),
    # ------------------------------------------------------------ declarations
    Known(
        "**A declaration that is invalid by itself**",
        "^declaring.equivalence_of_a_quorum_queue (?:4|9|10|11)[.]",
        rabbitmq=((r"^Channel.Close 40[56] \w+ - (?:inequivalent|cannot obtain).*", "refused"),),
        warren=((r"^Channel.Close 406 PRECONDITION_FAILED - invalid (?:arg|prop).*", "refused"),),
    ),
    Known(
        "**Arguments of one kind of queue.**",
        r"declare \w+ \{x-(?:delivery-limit|consumer-timeout|consumer-disconnected-timeout|"
        "max-priority).*",
        rabbitmq=((r"^Channel.Close 406 .* of queue type rabbit_\w+_queue.*", "refused"),),
        warren=((rf"^{OK}", "refused"),),
    ),
    Known(
        "An `x-queue-mode` other than `default` and",
        "^declaring.arguments_of_the_other_type (?:8|9)[.]",
        rabbitmq=((rf"^{OK}", "accepted"),),
        warren=((r"^Channel.Close 406 .*'x-queue-mode'.*", "accepted"),),
    ),
    Known(
        "| a target size that is no positive integer |",
        "^declaring.group_sizes (?:7|8|10)[.]",
        rabbitmq=((rf"^{OK}", "accepted"),),
        warren=((r"^Channel.Close 406 .*invalid arg 'x-quorum-\w+-group-size'.*", "accepted"),),
    ),
    Known(
        "| either size for a classic queue |",
        "^declaring.group_sizes 12[.]",
        rabbitmq=((rf"^{OK}", "accepted"),),
        warren=((r"^Channel.Close 406 .* of queue type rabbit_classic_queue.*", "accepted"),),
    ),
    Known(
        "| `x-delivery-limit` that is no integer | accepted | 406 |",
        "^declaring.numbers_of_a_quorum_queue .*x-delivery-limit",
        rabbitmq=((rf"^{OK}", "accepted"),),
        warren=((r"^Channel.Close 406 .*expected integer, got .*", "accepted"),),
    ),
    Known(
        "the last as an argument of a quorum queue is refused |",
        "^declaring.what_a_quorum_queue_cannot_be 5[.]",
        rabbitmq=((rf"^{OK}", "accepted"),),
        warren=((r"^Channel.Close 406 .*quorum queues have no reject-publish-dlx.*", "accepted"),),
    ),
    Known(
        "| delete with if-unused, if-empty | quorum queues: 540 | works for every queue |",
        "^declaring.delete_if_of_a_quorum_queue [24][.]",
        rabbitmq=((r"^Connection.Close 540 .*", "Queue.DeleteOk message_count=0"),),
    ),
    # ------------------------------------------------------------ consumers
    Known(
        "| exclusive consumers | classic queues; quorum queues ignore the flag |",
        "^consuming.(?:exclusive_consumers (?:3|4|7)|single_active_consumer 13)[.]",
        rabbitmq=((r"^Basic.ConsumeOk .*", "consumes"),),
        warren=((r"^Channel.Close 403 ACCESS_REFUSED .* in exclusive use.*", "consumes"),),
    ),
    Known(
        "| prefetch per channel (global) |",
        "^consuming.shared_prefetch (?:10|12)[.]",
        rabbitmq=((ANY, ""),),
        warren=((ANY, ""),),
    ),
    Known(
        "| prefetch per channel (global) |",
        "^consuming.shared_prefetch 13[.]",
        rabbitmq=((r"^Basic.ConsumeOk .*", "consumes"),),
        warren=((r"^Connection.Close 540 .* does not support global qos.*", "consumes"),),
    ),
    # ------------------------------------------------------------ limits
    Known(
        "**Reject-publish** is exact here",
        "^limits.reject_publish (?:4|7)[.]",
        rabbitmq=((r"^Basic.Ack$", "?"), (r"^Basic.Nack$", "Basic.Ack"), (r"\?", "Basic.Nack")),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^limits.reject_publish 6[.]",
        rabbitmq=(("message_count=2", "message_count=1"),),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^limits.reject_publish 8[.]",
        rabbitmq=(("^b c", "b e"),),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^policies.overflow_by_policy (?:6|10)[.]",
        rabbitmq=((r"^Basic.Ack$", "Basic.Nack"),),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^policies.overflow_by_policy (?:8|12)[.]",
        rabbitmq=(("message_count=2", "message_count=1"),),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^retry.delayed_messages_count_for_the_limit 8[.]",
        rabbitmq=((r"^Basic.Ack$", "Basic.Nack"),),
    ),
    Known(
        "**Reject-publish** is exact here",
        "^retry.delayed_messages_count_for_the_limit 10[.]",
        rabbitmq=((r"^Basic.GetOk .* body='c'$", "Basic.GetEmpty"),),
    ),
    Known(
        "up to 4,294,967,295 ms (49 days); above: 406 |",
        "^limits.expiration_of_messages .*4294967296",
        rabbitmq=((r"^Basic.Ack$", "refused"),),
        warren=((r"^Channel.Close 406 .*value_too_large,4294967296.*", "refused"),),
    ),
    # ------------------------------------------------------------ dead letters that wait
    Known(
        "**Reject-publish** is exact here",
        "^letters.waiting_letters_count_for_the_limit 9[.]",
        rabbitmq=((r"^Basic.Ack$", "Basic.Nack"),),
    ),
    Known(
        "is deleted or unbound meanwhile is not waited for",
        "^letters.one_of_two_targets_is_full 13[.]",
        rabbitmq=(("=1", "=0"),),
    ),
    # ------------------------------------------------------------ definitions
    Known(
        "`implicit_type` says that the declaration had none",
        "^definitions.*exported queues",
        warren=(("implicit_type: True, ", ""),),
    ),
    Known(
        "Internal exchanges are exported.",
        "^definitions.*exported exchanges",
        warren=((r"\n?[^\n]*internal: True[^\n]*", ""), ("internal: False, ", "")),
    ),
    Known(
        "Bindings of exclusive queues are not exported",
        "^definitions.*exported bindings",
        rabbitmq=((r"\n[^\n]*destination: 'mine'[^\n]*", ""),),
    ),
    Known(
        "A document of another form is refused with 400",
        "^definitions.refused_imports [234][.]",
        rabbitmq=(("^500$", "400"),),
    ),
    Known(
        "What Warren cannot have is left out, and named in the report",
        "^definitions.(?:refused_imports (?:6|7|8|10)|what_is_left_out [135])[.]",
        rabbitmq=(("^400$", "done"),),
    ),
    Known(
        "What Warren cannot have is left out, and named in the report",
        "^definitions.what_is_left_out 6[.]",
        rabbitmq=((r"^Channel.Close 404 .*", "there or not"),),
        warren=((rf"^{OK}", "there or not"),),
    ),
    Known(
        "`ha-*` and `queue-master-locator` are known, as in RabbitMQ 3.13; RabbitMQ 4.3 refuses",
        "^policies.keys_of_mirrored_queues [12357][.]",
        rabbitmq=(("^400 .*", "set"),),
    ),
    Known(
        "`ha-*` and `queue-master-locator` are known, as in RabbitMQ 3.13; RabbitMQ 4.3 refuses",
        "^policies.keys_of_mirrored_queues [46][.]",
        rabbitmq=(("^400 .*", "400"),),
        warren=(("^400 .*", "400"),),
    ),
    Known(
        "Times are at most ten years, as in arguments.",
        "^bounds.times_of_queues (?:29|30)[.]",
        rabbitmq=(("^set$", "refused"),),
        warren=(("^400 .*", "refused"),),
    ),
    Known(
        "A limit for a user that does not exist",
        "^capacity.limits_that_are_refused 15[.]",
        rabbitmq=(("^400 .*no_such_user.*", "refused"),),
        warren=(("^404 no user .*", "refused"),),
    ),
    # ------------------------------------------------------------ exchanges
    Known(
        "there an exchange that is bound is given the newest first",
        "^history.a_history_that_goes_to_an_exchange (?:9|10)[.]",
        rabbitmq=((r"'[ab](\.key)?'", "'one'"),),
        warren=((r"'[ab](\.key)?'", "'one'"),),
    ),
    Known(
        "unbinding any of them takes the queue out",
        "^exchanges.consistent_hash 20[.]",
        rabbitmq=((r"^Basic.Return reply_code=312 .*\n", ""),),
    ),
    Known(
        "A `hash-header` or `hash-property` that is no string is refused with 406",
        "^exchanges.consistent_hash 25[.]",
        rabbitmq=((r"^Connection.Close 541 .*", "refused"),),
        warren=((r"^Channel.Close 406 .*'hash-header'.*", "refused"),),
    ),
    Known(
        "**A passive declare of `amq.rabbitmq.reply-to.` and a name that is none**",
        "^publishing.direct_reply_to 6[.]",
        rabbitmq=((r"^Connection.Close 541 .*", "refused"),),
        warren=((r"^Channel.Close 404 .*", "refused"),),
    ),
    *KNOWN10,
)
