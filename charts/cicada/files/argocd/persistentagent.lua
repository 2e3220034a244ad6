-- Health of a PersistentAgent. A failed cycle is told, but only a stall is Degraded.
local health = {status = "Progressing", message = "not looked at yet"}
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return health
end
local failure = ""
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.reason .. ": " .. (condition.message or "")}
  end
  if condition.type == "LastCycleFailed" and condition.status == "True" then
    failure = "last cycle failed: " .. condition.reason
  end
end
if status.state == "Suspended" or status.state == "Held" then
  return {status = "Suspended", message = status.state}
end
if failure == "" then
  failure = status.state or ""
end
return {status = "Healthy", message = failure}
