-- What waits in the queue `orders`, by customer. A read of a queue takes nothing from it.
select
    get_json_object(cast(body as string), '$.customer') as customer,
    count(*) as messages,
    min(timestamp) as oldest
from waiting
group by 1
